// Every shared object that this process has loaded in any way: linked, preloaded, or opened with RTLD_LOCAL, where
// neither RTLD_DEFAULT nor RTLD_NEXT searches. It uses the C library alone, since libgradwire_any.so contains it too.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace gradwire {

/// Number of objects that the process has ever loaded and unloaded; at least 1. It grows with each dlopen that loads
/// one and each dlclose that unloads one.
inline unsigned long long count_loads() noexcept {
  unsigned long long loads = 1;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t /*bytes*/, void* count) {
        *static_cast<unsigned long long*>(count) = info->dlpi_adds + info->dlpi_subs;
        return 1;  // each object has the same numbers, so the first suffices
      },
      &loads);
  return loads;
}

/// Whether the function lies in one of gradwire's own preloaded libraries, libgradwire_*.so.
inline bool is_of_gradwire(const void* function) noexcept {
  Dl_info info{};
  if (::dladdr(function, &info) == 0 || info.dli_fname == nullptr) {
    return false;
  }
  std::string_view file(info.dli_fname);
  file.remove_prefix(file.rfind('/') + 1);  // npos + 1 is 0
  return file.starts_with("libgradwire_");
}

namespace detail {

// The objects' names, each with its zero. It is no std::vector, since libgradwire_any.so has no C++ library.
struct LoadedNames {
  char* text = nullptr;
  std::size_t used = 0;
  std::size_t room = 0;

  LoadedNames() = default;
  LoadedNames(const LoadedNames&) = delete;
  LoadedNames& operator=(const LoadedNames&) = delete;
  ~LoadedNames() { std::free(text); }  // NOLINT(cppcoreguidelines-no-malloc)

  void add(const char* name) noexcept {
    const std::size_t bytes = std::strlen(name) + 1;
    if (used + bytes > room) {
      const std::size_t more = 2 * room + bytes + 4096;
      auto* const grown = static_cast<char*>(std::realloc(text, more));  // NOLINT(cppcoreguidelines-no-malloc)
      if (grown == nullptr) {
        return;  // without memory the object is overlooked
      }
      text = grown;
      room = more;
    }
    std::memcpy(text + used, name, bytes);
    used += bytes;
  }
};

}  // namespace detail

/// Calls `look(handle)` with dlopen's handle of each object in the order in which they were loaded, the program first,
/// until it returns true; returns whether it did. dlsym on such a handle searches the object, then the objects that it
/// was linked with.
template <typename Look>
bool find_in_loaded_objects(const Look& look) {
  detail::LoadedNames names;  // collected first: no object may be opened under the lock of dl_iterate_phdr
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t /*bytes*/, void* to) {
        static_cast<detail::LoadedNames*>(to)->add(info->dlpi_name == nullptr ? "" : info->dlpi_name);
        return 0;
      },
      &names);
  for (std::size_t at = 0; at < names.used; at += std::strlen(names.text + at) + 1) {
    const char* const name = names.text[at] == '\0' ? nullptr : names.text + at;
    void* const handle = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) {
      continue;  // the kernel's own object, which is no file, or one that was closed meanwhile
    }
    const bool found = look(handle);
    ::dlclose(handle);
    if (found) {
      return true;
    }
  }
  return false;
}

/// The first definition of a function, in any object, that is not gradwire's own; null where there is none.
inline void* find_function_in_loaded_objects(const char* name) {
  void* function = nullptr;
  find_in_loaded_objects([&](void* handle) {
    void* const found = ::dlsym(handle, name);
    function = found != nullptr && !is_of_gradwire(found) ? found : nullptr;
    return function != nullptr;
  });
  return function;
}

}  // namespace gradwire
