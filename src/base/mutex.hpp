// Mutexes, their scoped locks and a condition variable for clang's thread safety analysis, which does not follow those
// of libstdc++. Each wraps its namesake of the standard library and costs no more. The macros state facts that clang
// checks (-Wthread-safety, preset `thread-safety`); other compilers see nothing. docs/style.md, "Locks", says how to
// use them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

#ifdef __clang__
#define GRADWIRE_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define GRADWIRE_THREAD_SAFETY(attribute)
#endif

// A member is read and written only under the mutex.
#define GUARDED_BY(mutex) GRADWIRE_THREAD_SAFETY(guarded_by(mutex))
// A thread that takes both mutexes takes this one first (checked by -Wthread-safety-beta).
#define ACQUIRED_BEFORE(...) GRADWIRE_THREAD_SAFETY(acquired_before(__VA_ARGS__))
// The caller of a function holds the mutex.
#define REQUIRES(...) GRADWIRE_THREAD_SAFETY(requires_capability(__VA_ARGS__))
// A function takes the mutex, or gives it back, for its caller.
#define ACQUIRE(...) GRADWIRE_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) GRADWIRE_THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) GRADWIRE_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) GRADWIRE_THREAD_SAFETY(release_capability(__VA_ARGS__))
// A function returns this mutex.
#define RETURN_CAPABILITY(mutex) GRADWIRE_THREAD_SAFETY(lock_returned(mutex))
// The analysis cannot follow a function; a comment at its use says why.
#define NO_THREAD_SAFETY_ANALYSIS GRADWIRE_THREAD_SAFETY(no_thread_safety_analysis)

namespace gradwire {

class GRADWIRE_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  /// States that the caller holds the mutex where the analysis cannot see it, as in a callback. Nothing checks it.
  void assert_held() const GRADWIRE_THREAD_SAFETY(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

/// Holds a mutex in its scope.
class [[nodiscard]] GRADWIRE_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  /// Takes over what try_lock() took.
  MutexLock(Mutex& mutex, std::adopt_lock_t /*adopt*/) REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Gives a mutex that the caller holds back for its scope.
class [[nodiscard]] GRADWIRE_THREAD_SAFETY(scoped_lockable) MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

/// A condition variable. The caller of a wait holds the mutex, and so does `reached` where it is called.
class CondVar {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

  void wait(Mutex& mutex) REQUIRES(mutex) {
    Held held(mutex.mutex_);
    changed_.wait(held.lock);
  }
  template <typename Reached>
  void wait(Mutex& mutex, Reached reached) REQUIRES(mutex) {
    Held held(mutex.mutex_);
    changed_.wait(held.lock, std::move(reached));
  }
  template <typename Rep, typename Period>
  void wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& limit) REQUIRES(mutex) {
    Held held(mutex.mutex_);
    changed_.wait_for(held.lock, limit);
  }
  /// Returns whether `reached` became true in time.
  template <typename Rep, typename Period, typename Reached>
  bool wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& limit, Reached reached) REQUIRES(mutex) {
    Held held(mutex.mutex_);
    return changed_.wait_for(held.lock, limit, std::move(reached));
  }

 private:
  // The lock that std::condition_variable needs. The caller keeps the mutex, even if `reached` throws.
  struct Held {
    explicit Held(std::mutex& mutex) : lock(mutex, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable changed_;
};

/// A mutex that many readers may hold at once.
class GRADWIRE_THREAD_SAFETY(capability("mutex")) SharedMutex {
 private:
  friend class ReaderLock;
  friend class WriterLock;
  std::shared_mutex mutex_;
};

class [[nodiscard]] GRADWIRE_THREAD_SAFETY(scoped_lockable) ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex) : lock_(mutex.mutex_) {}
  ~ReaderLock() RELEASE() = default;

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

class [[nodiscard]] GRADWIRE_THREAD_SAFETY(scoped_lockable) WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~WriterLock() RELEASE() = default;

 private:
  std::lock_guard<std::shared_mutex> lock_;
};

}  // namespace gradwire
