// The totals of this process, added up once for all subscribers: files, a server, histories.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.hpp"
#include "observe/collector.hpp"
#include "watch/aggregate.hpp"

namespace gradwire::watch {

class Totals {
 public:
  explicit Totals(observe::WatchedProcess process);

  void add(const observe::Round& round);

  // Only the thread that adds calls these, and nobody else writes what they read.
  [[nodiscard]] const Aggregate& aggregate() const noexcept NO_THREAD_SAFETY_ANALYSIS { return aggregate_; }
  /// The reader's state at the latest round.
  [[nodiscard]] const ReaderState& reader() const noexcept NO_THREAD_SAFETY_ANALYSIS { return reader_; }
  [[nodiscard]] std::uint64_t now() const noexcept NO_THREAD_SAFETY_ANALYSIS { return now_; }  // CLOCK_MONOTONIC, ns

  // These are for any thread.
  [[nodiscard]] const std::string& part() const noexcept { return process_.part; }
  [[nodiscard]] const std::string& job() const noexcept { return process_.job; }
  [[nodiscard]] std::vector<ReplacedCalls> replaced();
  [[nodiscard]] std::vector<Family> page();  // see page_of()

 private:
  const observe::WatchedProcess process_;
  const std::string host_;
  Mutex calls_;  // held during calls of process_.replaced
  Mutex known_;
  Aggregate aggregate_ GUARDED_BY(known_);
  ReaderState reader_ GUARDED_BY(known_);
  std::uint64_t now_ GUARDED_BY(known_) = 0;
};

/// Writes or serves the totals.
class Subscriber {
 public:
  Subscriber() = default;
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;
  virtual ~Subscriber() = default;
  /// Called after a round, on the thread that adds. No call follows where reader() says `ended`, or once it has thrown.
  virtual void take(Totals& totals) = 0;
  /// Called after a round: whether it wants no more.
  [[nodiscard]] virtual bool done() const noexcept { return false; }
};

class TotalsSink final : public observe::Sink {
 public:
  explicit TotalsSink(observe::WatchedProcess process) : totals_(std::make_shared<Totals>(std::move(process))) {}

  /// Must be called before the sink gets its first round.
  void subscribe(std::unique_ptr<Subscriber> subscriber) { subscribers_.push_back(std::move(subscriber)); }
  [[nodiscard]] const std::shared_ptr<Totals>& totals() const noexcept { return totals_; }
  void take(const observe::Round& round) override;
  [[nodiscard]] bool done() const noexcept override { return subscribers_.empty(); }

 private:
  std::shared_ptr<Totals> totals_;
  std::vector<std::unique_ptr<Subscriber>> subscribers_;
};

}  // namespace gradwire::watch
