/// Lets other Python threads run while native code works.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace fastio::python {

/// Releases the GIL for its lifetime. To be made with the GIL held.
///
/// A daemon thread that wants the GIL back while the interpreter ends never gets it: Python before
/// 3.14 ends such a thread by unwinding its stack, which aborts the process at the first noexcept
/// function, here as in nanobind. So the thread sleeps until the process has ended, as in 3.14.
class WithoutGil {
 public:
  WithoutGil() noexcept : state_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {        // not an exception, but glibc's way of pthread_exit
      for (;;) ::pause();  // leaving this block would go on with it
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace fastio::python
