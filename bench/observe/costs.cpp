#include "bench/observe/costs.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/elapsed.hpp"
#include "bench/support/samples.hpp"
#include "observe/record.hpp"

namespace gradwire::bench {
namespace {

using observe::Event;
using observe::EventKind;

constexpr std::uint64_t kEvents = 100'000;  // fewer than a ring holds

// Looks at each event, as an exporter does, and keeps none.
class Counting final : public observe::Sink {
 public:
  void take(const observe::Round& round) override {
    for (const observe::Stretch& stretch : round.stretches) {
      for (const Event& event : stretch.events) {
        bytes_ += event.bytes;
      }
    }
    recorded = round.recorded;
    dropped = round.dropped;
    reader_seconds = round.collector_seconds;
  }
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<double> reader_seconds{0};

 private:
  std::uint64_t bytes_ = 0;
};

Event some_event(std::uint64_t number) {
  return {.bytes = number, .source = 1, .step = 7, .bucket = 3, .kind = EventKind::send, .lane = 5, .peer = 2};
}

template <typename Body>
double nanoseconds_each(Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < kEvents; ++i) {
    body(i);
  }
  return 1e9 * seconds_since(begin) / static_cast<double>(kEvents);
}

}  // namespace

EventCosts event_costs(observe::ClockKind clock, int rounds) {
  const auto sink = std::make_shared<Counting>();
  observe::CollectorOptions options{.interval = std::chrono::hours(1)};
  options.clock = clock;
  observe::add_sink(sink, options);
  std::vector<double> moments;
  std::vector<double> spans;
  for (int round = 0; round < rounds; ++round) {
    moments.push_back(nanoseconds_each([](std::uint64_t i) {
      Event event = some_event(i);
      event.begin = observe::ticks();
      observe::record(event);
    }));
    observe::collect();
    spans.push_back(nanoseconds_each([](std::uint64_t i) { observe::record_since(observe::ticks(), some_event(i)); }));
    observe::collect();
  }
  observe::remove_sink(sink);
  return {median(moments), median(spans)};
}

double cost_when_off(int rounds) {
  std::vector<double> differences;
  std::atomic<std::uint64_t> work{0};
  const auto step = [&](std::uint64_t i) {
    work.store(work.load(std::memory_order_relaxed) + i, std::memory_order_relaxed);
  };
  for (int round = 0; round < rounds; ++round) {
    const double without = nanoseconds_each(step);
    const double with = nanoseconds_each([&](std::uint64_t i) {
      const std::uint64_t begin = observe::ticks();
      step(i);
      if (begin != 0) {
        observe::record_since(begin, some_event(i));
      }
    });
    differences.push_back(with - without);
  }
  return median(differences);
}

Loss reader_loss(double events_per_second, double seconds) {
  const auto sink = std::make_shared<Counting>();
  observe::add_sink(sink);
  Loss loss;
  std::thread([&] {
    // Records a hundred events between two looks at the clock, so that these cost little.
    constexpr std::uint64_t kAtOnce = 100;
    const auto begin = std::chrono::steady_clock::now();
    double now = 0;
    while (now < seconds) {
      while (static_cast<double>(loss.events) < now * events_per_second) {
        for (std::uint64_t i = 0; i < kAtOnce; ++i) {
          observe::record_since(observe::ticks(), some_event(i));
        }
        loss.events += kAtOnce;
      }
      now = seconds_since(begin);
    }
    loss.events_per_second = static_cast<double>(loss.events) / seconds_since(begin);
  }).join();
  observe::remove_sink(sink);
  loss.dropped = sink->dropped;
  loss.reader_seconds = sink->reader_seconds;
  return loss;
}

}  // namespace gradwire::bench
