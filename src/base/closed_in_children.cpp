#include "base/closed_in_children.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "base/mutex.hpp"

namespace gradwire {
namespace {

Mutex g_mutex;  // held during a fork, so that the child finds the array consistent
// The array is static, since a child must not allocate memory.
std::array<int, 65536> g_descriptors GUARDED_BY(g_mutex);  // the first g_count are used
std::size_t g_count GUARDED_BY(g_mutex) = 0;

// pthread_atfork() has the mutex held between its calls.
void before() noexcept ACQUIRE(g_mutex) { g_mutex.lock(); }
void in_parent() noexcept RELEASE(g_mutex) { g_mutex.unlock(); }
void in_child() noexcept RELEASE(g_mutex) {
  for (std::size_t i = 0; i < g_count; ++i) {
    ::close(g_descriptors[i]);
  }
  g_count = 0;
  g_mutex.unlock();
}

}  // namespace

bool close_in_children(int descriptor) noexcept {
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(&before, &in_parent, &in_child); });
  const MutexLock lock(g_mutex);
  if (g_count == g_descriptors.size()) {
    return false;
  }
  g_descriptors[g_count++] = descriptor;
  return true;
}

void forget_in_children(int descriptor) noexcept {
  const MutexLock lock(g_mutex);
  auto* const end = g_descriptors.begin() + g_count;
  if (auto* const found = std::find(g_descriptors.begin(), end, descriptor); found != end) {
    *found = *(end - 1);
    --g_count;
  }
}

}  // namespace gradwire
