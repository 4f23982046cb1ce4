#include "memory/background_threads.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/mutex.hpp"

namespace gradwire::memory {
namespace {

struct Registry {
  Mutex mutex;
  std::vector<int> threads GUARDED_BY(mutex);
  const Placement* placement GUARDED_BY(mutex) = nullptr;
};

Registry& registry() {
  static Registry& all = *new Registry;  // threads may end after static objects are destroyed
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
  all.threads.erase(std::find(all.threads.begin(), all.threads.end(), thread_));
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
