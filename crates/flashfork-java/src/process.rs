//! What `ProcessHandle.current()` says: the number of the process, and when it has started.

use crate::java::Java;
use jni_sys::{jclass, jfieldID, jlong, jmethodID, jobject};

/// Where it is kept.
pub struct Process {
    class: jclass,
    current: jobject,
    pid: jfieldID,
    start: jfieldID,
    /// Gives the start of a process.
    asks: jmethodID,
}

impl Process {
    /// Java code may run yet.
    pub fn find(java: &Java) -> Result<Process, String> {
        let class = java.class(c"java/lang/ProcessHandleImpl")?;
        let current = java.static_field(class, c"current", c"Ljava/lang/ProcessHandleImpl;")?;
        let found = Process {
            class,
            current: java.static_object(class, current),
            pid: java.field(class, c"pid", c"J")?,
            start: java.field(class, c"startTime", c"J")?,
            asks: java.static_method(class, c"isAlive0", c"(J)J")?,
        };
        Ok(found)
    }

    /// In a clone.
    pub fn renew(&self, java: &Java) -> Result<(), String> {
        let pid = jlong::from(std::process::id());
        // SAFETY: the method takes a number.
        let start = unsafe { java.call_static_long(self.class, self.asks, pid)? };
        java.set_long(self.current, self.pid, pid);
        java.set_long(self.current, self.start, start);
        Ok(())
    }
}
