// Keeps the background threads of a process, those of transports and tables, on the processors of its placement. They
// start before any policy is known, so a session binds them later.
#pragma once

#include "memory/placement.hpp"

namespace gradwire::memory {

/// Makes the calling thread one of the background threads, as long as this object lives on its stack.
class BackgroundThread {
 public:
  BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;
  ~BackgroundThread();

 private:
  int thread_;  // its number in the kernel
};

/// Binds all background threads of this process, and those that begin later, to the placement's processors. With null
/// later threads are left alone. The placement must live on. The last call counts.
void bind_background_threads(const Placement* placement);

}  // namespace gradwire::memory
