// Finds ranks that make different calls where one of them compresses and the other passes: each would wait for the
// other, one in our messages and one in the library's, until the library's timeout. Knows no Torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

/// One process group's. A call that has not ended for `patience` is told in the group's store, where the ranks that
/// went the other way look for its number. So a job without such waits costs the store nothing. A rank that has found
/// such calls tells the store, and gives the others a moment to read it before it ends its own: it may end with them,
/// and take the store along, or what the library's calls of the others need.
class CallWatch {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::chrono::milliseconds patience{2000};
    std::chrono::milliseconds moment{3000};  // at most, from what is told to the end of this rank's calls
  };
  /// `abort`: ends the calls that are compressed; on a thread of the watch, once.
  CallWatch(transport::Rendezvous store, const Options& options, std::function<void(const std::string& why)> abort);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  enum class Way : std::uint8_t { compressed, passed };
  /// A reduction begins; every rank makes the same ones in the same order. `describe`: such as "all_reduce of 10 f32";
  /// `fail` (may be empty) ends it with an error, on a thread of the watch. Throws Error(mismatch) where a call before
  /// has differed.
  std::uint64_t begin(Way way, std::function<std::string()> describe, std::function<void(const std::string& why)> fail);
  /// It has ended, however; any thread.
  void end(std::uint64_t number) noexcept;
  /// Looks at calls no longer, which may still end.
  void stop() noexcept;
  /// Throws Error(mismatch) where a call has differed.
  void check() const;
  /// What a call is to end with that has failed with `error`: where some rank has told of calls that differ, an error
  /// that names both, with the words of this one behind it; else `error` itself. Looks into the store once.
  [[nodiscard]] std::exception_ptr explained(std::exception_ptr error) noexcept;
  /// Whether a `fail` or `abort` asks, which cannot end it.
  [[nodiscard]] bool on_own_thread() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    Way way;
    Clock::time_point begin;
    std::function<std::string()> describe;
    std::function<void(const std::string& why)> fail;
  };
  struct Late {
    std::uint64_t number;
    Way way;
    std::string text;
  };
  void run();
  [[nodiscard]] std::vector<Late> late_calls() const;
  [[nodiscard]] std::string compare(const Late& mine);
  [[nodiscard]] std::string told_of() const;
  void tell(const std::string& why) noexcept;
  void note(const std::string& why) noexcept;
  void give_up(const std::string& why);

  transport::Rendezvous store_;
  Options options_;
  std::function<void(const std::string& why)> abort_;
  mutable Mutex mutex_;
  CondVar stopping_;
  bool stop_ GUARDED_BY(mutex_) = false;
  std::uint64_t next_ GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Call> calls_ GUARDED_BY(mutex_);  // under way
  std::string failure_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gradwire::torch_c10d
