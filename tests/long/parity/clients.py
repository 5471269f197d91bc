def compare(both):
    return
