// A shared library that the process may load, or not, at any time: found without loading it.
#pragma once

#include <atomic>

namespace gradwire {

class LoadedLibrary {
 public:
  /// `name` as dlopen wants it, "libcuda.so.1"; must outlive this.
  constexpr explicit LoadedLibrary(const char* name) noexcept : name_(name) {}

  /// dlopen's handle, or null as long as the process has not loaded the library; once found it stays loaded. Any
  /// thread. Cheap: the file system is searched, which takes tens of microseconds, only where some library was loaded
  /// since the last look.
  [[nodiscard]] void* handle() noexcept;

 private:
  const char* name_;
  std::atomic<void*> handle_{nullptr};
  std::atomic<unsigned long long> loads_{0};  // of any library, at the last look
};

}  // namespace gradwire
