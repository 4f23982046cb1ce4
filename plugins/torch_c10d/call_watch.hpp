// Finds ranks that make different calls where one of them compresses and the other passes: each would wait for the
// other, one in our messages and one in the library's, until the library's timeout. Knows no Torch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/tcp/tcp_transport.hpp"

namespace gradwire::torch_c10d {

/// One process group's. A call that has not ended for `patience` is told in the group's store, where the ranks that
/// went the other way look for its number. So a job without such waits costs the store nothing.
class CallWatch {
 public:
  struct Options {
    int rank = 0;
    std::chrono::milliseconds patience{2000};
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
  void give_up(const std::string& why);

  transport::Rendezvous store_;
  Options options_;
  std::function<void(const std::string& why)> abort_;
  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, Call> calls_;  // under way
  std::string failure_;
  std::thread thread_;
};

}  // namespace gradwire::torch_c10d
