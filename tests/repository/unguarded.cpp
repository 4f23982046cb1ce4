// Code that clang's thread safety analysis must refuse: each CASE breaks one rule of base/mutex.hpp; 0 breaks none.
#include "base/awake_time.hpp"
#include "base/mutex.hpp"

namespace gradwire {

class Counter {
 public:
  void count() {
#if CASE != 1
    const MutexLock lock(mutex_);
#endif
    ++count_;
    add();
  }
  bool count_if_free() {
    if (!mutex_.try_lock()) {
      return false;
    }
    const MutexLock lock(mutex_, std::adopt_lock);
    add();
    return true;
  }
  void await() {
#if CASE == 2
    changed_.wait(mutex_);
#endif
    const MutexLock lock(mutex_);
#if CASE == 3
    changed_.wait(mutex_, [this] { return count_ > 0; });
#else
    changed_.wait(mutex_, [this]() REQUIRES(mutex_) { return count_ > 0; });
#endif
    const MutexUnlock meanwhile(mutex_);
#if CASE == 4
    add();
#endif
  }
  bool await_long() {
#if CASE != 5
    const MutexLock lock(mutex_);
#endif
    return wait_awake(changed_, mutex_, std::chrono::hours(1), [this]() REQUIRES(mutex_) { return count_ > 0; });
  }
  [[nodiscard]] Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }
  void add() REQUIRES(mutex_) { ++count_; }
  void share() {
#if CASE == 6
    const ReaderLock lock(shared_mutex_);
#else
    const WriterLock lock(shared_mutex_);
#endif
    shared_ = 1;
  }
  void take_both() {
#if CASE == 9
    const MutexLock second(mutex_);
    const MutexLock first(first_);
#else
    const MutexLock first(first_);
    const MutexLock second(mutex_);
#endif
  }
  [[nodiscard]] int shared() const {
#if CASE != 7
    const ReaderLock lock(shared_mutex_);
#endif
    return shared_;
  }

 private:
  Mutex mutex_;
  Mutex first_ ACQUIRED_BEFORE(mutex_);
  CondVar changed_;
  int count_ GUARDED_BY(mutex_) = 0;
  mutable SharedMutex shared_mutex_;
  int shared_ GUARDED_BY(shared_mutex_) = 0;
};

void add_to(Counter& one, Counter& other) {
  const MutexLock lock(one.mutex());
  one.add();
#if CASE == 8
  other.add();
#else
  other.count();
#endif
}

}  // namespace gradwire
