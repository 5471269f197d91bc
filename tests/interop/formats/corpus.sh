# shellcheck shell=bash
# The corpus: images as qemu-img, zstd, gzip and xz make them. `corpus DIRECTORY` makes all of
# them there and writes a line for each into DIRECTORY/list: name, format, and a part of the
# error message it must give, or `-` if its content must be `NAME.expected`.

# kept NAME FORMAT: the conversion by qemu-img is the expected content.
kept() {
    qemu-img convert -O raw "$1" "$1.expected" || return 1
    echo "$1 $2 -" >>list
}
refused() { echo "$1 $2 $3" >>list; }

make() { qemu-img create -q -f qcow2 "$@"; }
io() { # FILE COMMAND...: changes an image as a running machine would.
    local file=$1 part commands=()
    shift
    for part; do commands+=(-c "$part"); done
    qemu-io -f qcow2 "${commands[@]}" "$file" >/dev/null
}

# A disk with bytes that compress and bytes that do not, runs of zeros, and an unaligned end.
seed() {
    qemu-img create -q -f raw disk.raw $((24 * 1048576 + 512))
    dd if=/dev/urandom of=disk.raw bs=1M count=3 seek=1 conv=notrunc status=none
    yes 'a line of text that packs well' | head -c 5000000 |
        dd of=disk.raw bs=64K seek=100 conv=notrunc status=none
    dd if=/dev/urandom of=disk.raw bs=512 count=3 seek=$((24 * 2048 - 2)) conv=notrunc status=none
    dd if=/dev/zero of=disk.raw bs=1M count=1 seek=12 conv=notrunc status=none
}

qcow2s() {
    local bytes mode
    qemu-img convert -O qcow2 -o compat=0.10 disk.raw v2.qcow2 && kept v2.qcow2 qcow2
    qemu-img convert -O qcow2 -o compat=1.1 disk.raw v3.qcow2 && kept v3.qcow2 qcow2
    qemu-img convert -O qcow2 -c -o compat=0.10 disk.raw v2-packed.qcow2 && kept v2-packed.qcow2 qcow2
    qemu-img convert -O qcow2 -c disk.raw packed.qcow2 && kept packed.qcow2 qcow2
    qemu-img convert -O qcow2 -c -o compression_type=zstd disk.raw packed-zstd.qcow2 &&
        kept packed-zstd.qcow2 qcow2
    for bytes in 512 1k 4k 16k 128k 1M 2M; do
        qemu-img convert -O qcow2 -o cluster_size=$bytes disk.raw c$bytes.qcow2 && kept c$bytes.qcow2 qcow2
        qemu-img convert -O qcow2 -c -o cluster_size=$bytes disk.raw cp$bytes.qcow2 && kept cp$bytes.qcow2 qcow2
    done
    qemu-img convert -O qcow2 -c -o cluster_size=2M,compression_type=zstd disk.raw cz2M.qcow2 && kept cz2M.qcow2 qcow2
    qemu-img convert -O qcow2 -o extended_l2=on,cluster_size=128k disk.raw extended.qcow2 && kept extended.qcow2 qcow2
    qemu-img convert -O qcow2 -c -o extended_l2=on disk.raw extended-packed.qcow2 && kept extended-packed.qcow2 qcow2
    make -o extended_l2=on,cluster_size=64k parts.qcow2 8M &&
        io parts.qcow2 'write -P 5 2k 2k' 'write -P 6 70k 3k' 'write -z 71k 1k' 'write -P 7 200k 300k' \
            'discard 260k 64k' 'write -P 9 8386560 2k' && kept parts.qcow2 qcow2
    for mode in off metadata falloc full; do
        make -o preallocation=$mode pre-$mode.qcow2 6M &&
            io pre-$mode.qcow2 'write -P 3 1M 100k' && kept pre-$mode.qcow2 qcow2
    done
    make -o preallocation=metadata,extended_l2=on pre-extended.qcow2 6M && kept pre-extended.qcow2 qcow2
    make empty.qcow2 0 && kept empty.qcow2 qcow2
    make absent.qcow2 40M && kept absent.qcow2 qcow2
    make end.qcow2 3G && io end.qcow2 'write -P 1 3221225 5k' 'write -P 8 3221221376 4k' && kept end.qcow2 qcow2
    make odd.qcow2 1000448 && io odd.qcow2 'write -P 4 1000000 448' && kept odd.qcow2 qcow2
    make written.qcow2 10M && io written.qcow2 'write -P 1 0 64k' 'write -P 2 100k 4k' 'write -z 64k 128k' \
        'write -P 2 300k 1k' 'write -c -P 3 1M 64k' 'discard 0 64k' 'write -z -u 5M 1M' && kept written.qcow2 qcow2
    cp v3.qcow2 snapshots.qcow2 && qemu-img snapshot -c one snapshots.qcow2 &&
        io snapshots.qcow2 'write -P 9 1M 200k' && qemu-img snapshot -c two snapshots.qcow2 &&
        io snapshots.qcow2 'write -P 8 5M 1M' && kept snapshots.qcow2 qcow2
    cp v3.qcow2 grown.qcow2 && qemu-img resize -q grown.qcow2 30M && kept grown.qcow2 qcow2
    cp v3.qcow2 shrunk.qcow2 && qemu-img resize -q --shrink shrunk.qcow2 9M && kept shrunk.qcow2 qcow2
    make -o lazy_refcounts=on lazy.qcow2 4M && io lazy.qcow2 'write -P 4 1M 64k' && kept lazy.qcow2 qcow2
    cp lazy.qcow2 dirty.qcow2 && poke dirty.qcow2 79 1 && kept dirty.qcow2 qcow2
    cp v3.qcow2 bitmap.qcow2 && qemu-img bitmap --add bitmap.qcow2 marks && kept bitmap.qcow2 qcow2
}

poke() { # FILE AT VALUE
    # shellcheck disable=SC2059
    printf "\\x$(printf %x "$3")" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

refusals() {
    make -b v3.qcow2 -F qcow2 backed.qcow2 && refused backed.qcow2 qcow2 'has a backing file (v3.qcow2)'
    make -o compat=0.10 -b v2.qcow2 -F qcow2 backed-v2.qcow2 && refused backed-v2.qcow2 qcow2 'has a backing file (v2.qcow2)'
    make -u -b json:'{"driver":"file","filename":"/etc/shadow"}' -F raw backed-json.qcow2 1M &&
        refused backed-json.qcow2 qcow2 'has a backing file (json:'
    make -o data_file=bytes.raw data.qcow2 4M && refused data.qcow2 qcow2 'external data file (bytes.raw)'
    make -o data_file=bytes2.raw,data_file_raw=on data-raw.qcow2 4M &&
        refused data-raw.qcow2 qcow2 'external data file (bytes2.raw)'
    make --object secret,id=key,data=secret -o encrypt.format=aes,encrypt.key-secret=key aes.qcow2 4M &&
        refused aes.qcow2 qcow2 'is encrypted (AES)'
    # qemu-img measures how long a LUKS key takes, which some kernels do not allow: there the
    # header of another image is changed to LUKS.
    { make --object secret,id=key,data=secret -o encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10 \
        luks.qcow2 4M 2>/dev/null || { cp aes.qcow2 luks.qcow2 && poke luks.qcow2 35 2; }; } &&
        refused luks.qcow2 qcow2 'is encrypted (LUKS)'
    head -c 5000000 v3.qcow2 >cut.qcow2 && refused cut.qcow2 qcow2 'outside the file'
    head -c 60 v3.qcow2 >head.qcow2 && refused head.qcow2 qcow2 'is cut short'
    head -c $(($(stat -c %s packed.qcow2) - 70000)) packed.qcow2 >cut-packed.qcow2 &&
        refused cut-packed.qcow2 qcow2 'is cut short or damaged'
    cp v3.qcow2 corrupt.qcow2 && poke corrupt.qcow2 79 2 && refused corrupt.qcow2 qcow2 'is marked as corrupt'
    cp v3.qcow2 feature.qcow2 && poke feature.qcow2 76 128 && refused feature.qcow2 qcow2 'incompatible bits'
    cp v3.qcow2 version.qcow2 && poke version.qcow2 7 4 && refused version.qcow2 qcow2 'version 4'
    cp disk.raw not.qcow2 && refused not.qcow2 qcow2 'is declared as qcow2'
    qemu-img convert -O qed disk.raw disk.qed && refused disk.qed qcow2 'is declared as qcow2'
    cp v3.qcow2 unsaid.raw && refused unsaid.raw raw 'qcow2'
}

streams() {
    gzip -c disk.raw >disk.raw.gz
    head -c 10000000 disk.raw | gzip -1c >two.raw.gz
    tail -c +10000001 disk.raw | gzip -9c >>two.raw.gz
    xz -1c disk.raw >disk.raw.xz
    xz -9c -T2 --block-size=4MiB --check=sha256 disk.raw >blocks.raw.xz
    { xz -0c disk.raw && head -c 8 /dev/zero; } >padded.raw.xz
    xz --x86 --lzma2=preset=1 -c disk.raw >x86.raw.xz
    zstd -q -c disk.raw >disk.raw.zst
    { head -c 10000000 disk.raw | zstd -q -19 -c && tail -c +10000001 disk.raw | zstd -q -1 --no-check -c; } >two.raw.zst
    zstd -q --long=27 -c disk.raw >long.raw.zst
    for name in disk.raw.gz two.raw.gz disk.raw.xz blocks.raw.xz padded.raw.xz x86.raw.xz disk.raw.zst \
        two.raw.zst long.raw.zst; do
        ln disk.raw $name.expected
        echo "$name $(format "$name") -" >>list
    done
    for name in disk.raw.gz disk.raw.xz disk.raw.zst; do
        head -c $(($(stat -c %s $name) - 3)) $name >cut-$name && refused cut-$name "$(format $name)" 'is cut short'
        { cat $name && echo more; } >more-$name && refused more-$name "$(format $name)" 'publish it again'
        cp $name bad-$name && poke bad-$name 2000000 1 && poke bad-$name 2000001 2 &&
            refused bad-$name "$(format $name)" 'is not a valid'
    done
    head -c 300M /dev/zero | zstd -q --ultra -22 --long=30 -c >huge.raw.zst && refused huge.raw.zst zstd 'MiB of memory'
    cp disk.raw.gz wrong.raw.xz && refused wrong.raw.xz xz 'those of gzip'
}
format() {
    case $1 in *.gz) echo gzip ;; *.xz) echo xz ;; *.zst) echo zstd ;; esac
}

corpus() {
    (cd "$1" && : >list && seed && qcow2s && refusals && streams)
}
