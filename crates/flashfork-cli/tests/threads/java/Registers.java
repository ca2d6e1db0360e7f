import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLongArray;

/** Threads whose compiled code draws, makes objects and draws again: the generator's state may be in a register. */
public class Registers {
	static final int THREADS = 4, KEPT = 1024, ROUNDS = 300_000;
	static final AtomicLongArray COUNTS = new AtomicLongArray(THREADS);
	static final long[][] DRAWN = new long[THREADS][KEPT];
	static final byte[][] SINKS = new byte[THREADS][];
	static volatile boolean stop;

	static void draw(int number) {
		ThreadLocalRandom random = ThreadLocalRandom.current();
		long[] drawn = DRAWN[number];
		long count = 0;
		int place = 0;
		while (!stop) {
			long a = random.nextLong();
			SINKS[number] = new byte[3000];
			long b = random.nextLong();
			SINKS[number] = new byte[2000];
			long c = random.nextLong();
			if ((++count & 255) == 0) {
				drawn[place++ & (KEPT - 1)] = a ^ b ^ c;
				COUNTS.lazySet(number, count);
			}
		}
	}

	/** Until none is kept any more of what is now. */
	static void goOn() throws Exception {
		for (int i = 0; i < THREADS; i++) {
			long count = COUNTS.get(i);
			while (COUNTS.get(i) < count + ROUNDS) Thread.sleep(1);
		}
	}

	public static void main(String[] arguments) throws Exception {
		Thread[] threads = new Thread[THREADS];
		for (int i = 0; i < THREADS; i++) {
			int number = i;
			threads[i] = new Thread(() -> draw(number));
			threads[i].start();
		}
		goOn();
		flashfork.Flashfork.ready(arguments);
		goOn();
		stop = true;
		for (Thread thread : threads) thread.join();
		for (long[] drawn : DRAWN) for (long one : drawn) System.out.println(Long.toHexString(one));
	}
}
