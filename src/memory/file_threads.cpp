// Requests by threads, for systems without io_uring.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.hpp"
#include "gradwire/error.hpp"
#include "memory/file_requests.hpp"

namespace gradwire::memory {
namespace {

// More threads do not make a disk quicker.
constexpr std::uint32_t kMostThreads = 16;

class FileThreads final : public FileRequests {
 public:
  FileThreads(int descriptor, std::uint32_t in_flight) : descriptor_(descriptor) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the job's own threads
    try {
      for (std::uint32_t i = 0; i < std::min(in_flight, kMostThreads); ++i) {
        threads_.emplace_back([this] { work(); });
      }
    } catch (const std::system_error&) {
      // The threads that were started are enough.
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (threads_.empty()) {
      throw Error(ErrorCode::unsupported,
                  "no thread can be started that reads and writes a scratch file; raise the "
                  "limit of processes (ulimit -u)");
    }
  }
  ~FileThreads() override {
    {
      const MutexLock lock(mutex_);
      ends_ = true;
    }
    begun_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  bool begin(const FileRequest& request) override {
    {
      const MutexLock lock(mutex_);
      waiting_.push_back(request);
    }
    begun_.notify_one();
    return true;
  }

  void collect(std::vector<FileResult>& ended, bool waits) override {
    const MutexLock lock(mutex_);
    if (waits) {
      finished_.wait(mutex_, [&]() REQUIRES(mutex_) { return !ended_.empty(); });
    }
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }

 private:
  void work() {
    const MutexLock lock(mutex_);
    for (;;) {
      begun_.wait(mutex_, [&]() REQUIRES(mutex_) { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) {
        return;
      }
      const FileRequest request = waiting_.front();
      waiting_.pop_front();
      FileResult result{request.slot, 0};
      {
        const MutexUnlock unlock(mutex_);
        const auto offset = static_cast<off_t>(request.offset);
        const ssize_t moved = request.writes ? ::pwrite(descriptor_, request.memory, request.bytes, offset)
                                             : ::pread(descriptor_, request.memory, request.bytes, offset);
        result.bytes = moved < 0 ? -std::int64_t{errno} : moved;
      }
      ended_.push_back(result);
      finished_.notify_one();
    }
  }

  int descriptor_;
  Mutex mutex_;
  CondVar begun_;
  CondVar finished_;
  std::deque<FileRequest> waiting_ GUARDED_BY(mutex_);
  std::vector<FileResult> ended_ GUARDED_BY(mutex_);
  bool ends_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<FileRequests> make_file_threads(int descriptor, std::uint32_t in_flight) {
  return std::make_unique<FileThreads>(descriptor, in_flight);
}

}  // namespace gradwire::memory
