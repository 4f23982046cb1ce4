// Finds ranks whose calls differ, so that one compresses its call and the other passes it: each would wait for the
// other, one in our messages and one in the library's, until the library's timeout. Does not use Torch.
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

/// Watches the calls of one process group. A call that has not ended after `patience` is written to the group's store,
/// where ranks that went the other way look for its number. So a job without such waits costs the store nothing. A rank
/// that finds differing calls writes that to the store, and gives the others a moment to read it before it ends its own
/// calls: its process may end then, and with it the store, or connections that the library's calls of the others need.
class CallWatch {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    std::chrono::milliseconds patience{2000};
    std::chrono::milliseconds moment{3000};  // at most, from telling the others to ending this rank's calls
  };
  /// `abort` ends the compressed calls; it is called once, on the watch's thread.
  CallWatch(transport::Rendezvous store, const Options& options, std::function<void(const std::string& why)> abort);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  enum class Way : std::uint8_t { compressed, passed };
  /// To be called when a reduction begins; every rank makes the same ones in the same order. Returns its number.
  /// `describe` returns a text such as "all_reduce of 10 f32"; `fail` (may be empty) ends the reduction with an error,
  /// on the watch's thread. Throws Error(mismatch) if an earlier call differed.
  std::uint64_t begin(Way way, std::function<std::string()> describe, std::function<void(const std::string& why)> fail);
  /// To be called when the reduction has ended, well or not, on any thread.
  void end(std::uint64_t number) noexcept;
  /// Stops watching. end() may still be called.
  void stop() noexcept;
  /// Throws Error(mismatch) if a call differed.
  void check() const;
  /// Returns the error for a call that failed with `error`: if some rank found calls that differ, an error that names
  /// both and quotes `error`; else `error` itself. Reads the store once.
  [[nodiscard]] std::exception_ptr explained(std::exception_ptr error) noexcept;
  /// Whether the caller is a `fail` or `abort`, which cannot destroy the watch.
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
  std::map<std::uint64_t, Call> calls_ GUARDED_BY(mutex_);  // running
  std::string failure_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gradwire::torch_c10d
