import sys, numpy
from concurrent.futures import ThreadPoolExecutor
numpy.ones((300, 300)) @ numpy.ones((300, 300))
sys.pool = ThreadPoolExecutor(8)
list(sys.pool.map(lambda n: n * n, range(64)))
