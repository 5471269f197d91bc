def requests():
    return []
