import java.security.*;

/** Has a generator that nobody knows. */
public class Strange {
	static class Service extends SecureRandomSpi {
		protected void engineSetSeed(byte[] seed) {}
		protected void engineNextBytes(byte[] bytes) {}
		protected byte[] engineGenerateSeed(int count) { return new byte[count]; }
	}

	static class Own extends SecureRandom {
		Own() { super(new Service(), null); }
	}

	static Object kept;

	public static void main(String[] arguments) throws Exception {
		kept = new Own();
		flashfork.Flashfork.ready(arguments);
	}
}
