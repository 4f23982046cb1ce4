// Preloaded on one rank, to limit its resources. SCARCE_THREADS=n: gradwire can start at most n threads, as at a limit
// of processes. SCARCE_MEMORY=n: gradwire gets no block of n bytes or more. Requests of MPI and the job succeed.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

extern "C" void* __libc_malloc(std::size_t bytes);  // NOLINT(bugprone-reserved-identifier): glibc's

namespace {

constinit std::atomic<long> g_threads_left{-1};
constinit std::atomic<std::size_t> g_too_large{0};

[[gnu::constructor]] void read_limits() {
  if (const char* threads = std::getenv("SCARCE_THREADS")) {
    g_threads_left = std::atol(threads);
  }
  if (const char* bytes = std::getenv("SCARCE_MEMORY")) {
    g_too_large = static_cast<std::size_t>(std::atol(bytes));
  }
}

bool of_gradwire(const void* caller) {
  Dl_info found{};
  return ::dladdr(caller, &found) != 0 && found.dli_fname != nullptr &&
         std::strstr(found.dli_fname, "libgradwire") != nullptr;
}

}  // namespace

extern "C" void* malloc(std::size_t size) {
  const std::size_t limit = g_too_large;
  if (limit > 0 && size >= limit && of_gradwire(__builtin_return_address(0))) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}

extern "C" int pthread_create(pthread_t* newthread, const pthread_attr_t* attr, void* (*start_routine)(void*),
                              void* arg) {
  using Create = decltype(&pthread_create);
  static const auto next = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (g_threads_left >= 0 && of_gradwire(__builtin_return_address(0)) && g_threads_left-- <= 0) {
    g_threads_left = 0;
    return EAGAIN;
  }
  return next(newthread, attr, start_routine, arg);
}
