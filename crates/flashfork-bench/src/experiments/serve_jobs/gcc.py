import subprocess


def total(number):
	"""By a program that is compiled for it."""
	subprocess.run(["gcc", "-O2", "-o", "/tmp/primes", "primes.c"], check=True)
	said = subprocess.run(["/tmp/primes", "100"], check=True, stdout=subprocess.PIPE).stdout
	assert said == b"25 primes up to 100\n", said
	return sum(range(number))


