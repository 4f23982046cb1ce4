#include "memory/background_threads.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "base/mutex.hpp"

namespace gradwire::memory {
namespace {

struct Registry {
  Mutex mutex;
  std::vector<int> threads GUARDED_BY(mutex);
  const Placement* placement GUARDED_BY(mutex) = nullptr;
};

Registry& registry();

// pthread_atfork() has the lock held between its calls. The child has none of the threads, and a number may be another
// process's by then.
void hold_registry() NO_THREAD_SAFETY_ANALYSIS { registry().mutex.lock(); }
void release_registry() NO_THREAD_SAFETY_ANALYSIS { registry().mutex.unlock(); }
void forget_threads() NO_THREAD_SAFETY_ANALYSIS {
  registry().threads.clear();
  registry().mutex.unlock();
}

Registry& registry() {
  static Registry& all = []() -> Registry& {
    Registry& made = *new Registry;  // threads may end after static objects are destroyed
    ::pthread_atfork(&hold_registry, &release_registry, &forget_threads);
    return made;
  }();
  return all;
}

}  // namespace

BackgroundThread::BackgroundThread() : thread_(static_cast<int>(::syscall(SYS_gettid))) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.threads.push_back(thread_);
  if (all.placement != nullptr) {
    bind_thread(thread_, *all.placement);
  }
}

BackgroundThread::~BackgroundThread() {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  std::erase(all.threads, thread_);
}

void bind_background_threads(const Placement* placement) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.placement = placement;
  for (const int thread : all.threads) {
    if (placement != nullptr) {
      bind_thread(thread, *placement);
    }
  }
}

}  // namespace gradwire::memory
