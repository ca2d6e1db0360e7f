number=$(tr -cd 0-9)
place=$(mktemp -d)
gcc -O2 -o "$place/primes" primes.c && said=$("$place/primes" 100)
rm -r "$place"
[ "$said" = '25 primes up to 100' ] || exit 1
below=$((number % 100))
echo "{\"number\": $number, \"total\": $((below * (below - 1) / 2)), \"calls\": 1, \"begun\": 0, \"ended\": 0}"
