// Finds a shared library, which the process may load at any time or never, without loading it.
#pragma once

#include <atomic>

namespace gradwire {

class LoadedLibrary {
 public:
  /// `name` as for dlopen, "libcuda.so.1"; it must outlive this.
  constexpr explicit LoadedLibrary(const char* name) noexcept : name_(name) {}

  /// dlopen's handle, or null as long as the process has not loaded the library; once found it stays loaded. Any
  /// thread. The call is cheap: it searches the file system, which takes tens of microseconds, only where some library
  /// was loaded since the last search.
  [[nodiscard]] void* handle() noexcept;

 private:
  const char* name_;
  std::atomic<void*> handle_{nullptr};
  std::atomic<unsigned long long> loads_{0};  // count_loads() at the last search
};

}  // namespace gradwire
