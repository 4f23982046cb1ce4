// An object for each thread that can be used until the very end: jobs call from destructors of static objects and from
// atexit handlers, when the main thread's own thread_local objects are destroyed already.
#pragma once

#include <utility>

namespace gradwire {

/// The calling thread's `T`, made at its first call. It is freed with the thread; a later call makes another one. Only
/// a pointer lies in thread-local storage, which must be small in a library that is loaded late.
template <typename T>
[[nodiscard]] T& per_thread() {
  static constinit thread_local T* object = nullptr;
  struct Frees {
    ~Frees() { delete std::exchange(object, nullptr); }
  };
  if (object == nullptr) {
    static thread_local const Frees at_the_end_of_the_thread;
    static_cast<void>(at_the_end_of_the_thread);
    object = new T;
  }
  return *object;
}

}  // namespace gradwire
