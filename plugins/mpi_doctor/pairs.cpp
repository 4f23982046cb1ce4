#include "plugins/mpi_doctor/pairs.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <limits>
#include <thread>

#include "base/median.hpp"
#include "choice/link_measurement.hpp"

namespace gradwire::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSilence{60};
constexpr std::chrono::seconds kCall{10};             // how often rank 0 says that it is alive
constexpr std::chrono::microseconds kNap{200};        // sleep of ranks that wait for their turn
constexpr std::size_t kPart = std::size_t{64} << 10;  // bytes of a message of a stream
constexpr int kClockPings = 20;
constexpr int kAgain = 2;  // further measurements of links that seem slow
constexpr std::size_t kMostSuspects = 64;

constexpr int kOrderTag = 1;
constexpr int kPingTag = 2;
constexpr int kStreamTag = 3;
constexpr int kControlTag = 4;
constexpr int kResultTag = 5;
constexpr int kTextTag = 6;

enum class What : int { pair_first, pair_second, clock, wait, end };

struct Order {
  int what = 0;
  int other = 0;        // the other rank of a pair
  bool within = false;  // both ranks are on one host
};

struct PairResult {
  double latency = 0;
  double out = 0;   // first to second
  double back = 0;  // second to first
};

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }
double wall() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

[[noreturn]] void give_up(MPI_Comm comm, int other) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  std::cerr << "gradwire doctor: rank " << rank << " waited " << kSilence.count() << " s for rank " << other
            << ", which does not answer: see whether its process is stopped, and whether its host can be reached\n";
  MPI_Abort(comm, 1);
  std::_Exit(1);
}

/// Waits for a request. With `nap` this rank sleeps, to leave the cores to ranks that measure. `times` is the limit in
/// multiples of kSilence.
void wait(MPI_Comm comm, MPI_Request& request, int other, bool nap = false, int times = 1) {
  const auto begin = Clock::now();
  int done = 0;
  for (;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) {
      return;
    }
    if (nap) {
      std::this_thread::sleep_for(kNap);
    } else {
      sched_yield();
    }
    if (Clock::now() - begin > times * kSilence) {
      give_up(comm, other);
    }
  }
}

template <class Value>
void send(MPI_Comm comm, const Value& value, int to, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(&value, sizeof value, MPI_BYTE, to, tag, comm, &request);
  wait(comm, request, to);
}

template <class Value>
Value receive(MPI_Comm comm, int from, int tag, bool nap = false, int times = 1) {
  Value value{};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(&value, sizeof value, MPI_BYTE, from, tag, comm, &request);
  wait(comm, request, from, nap, times);
  return value;
}

/// Sends or receives so many bytes, in messages that are all under way at once.
void stream(MPI_Comm comm, std::vector<std::byte>& buffer, std::uint64_t bytes, int other, bool sends) {
  buffer.resize(std::max<std::size_t>(buffer.size(), bytes));
  std::vector<MPI_Request> requests((bytes + kPart - 1) / kPart, MPI_REQUEST_NULL);
  for (std::size_t part = 0; part < requests.size(); ++part) {
    std::byte* at = buffer.data() + part * kPart;
    const int size = static_cast<int>(std::min<std::uint64_t>(kPart, bytes - part * kPart));
    if (sends) {
      MPI_Isend(at, size, MPI_BYTE, other, kStreamTag, comm, &requests[part]);
    } else {
      MPI_Irecv(at, size, MPI_BYTE, other, kStreamTag, comm, &requests[part]);
    }
  }
  for (MPI_Request& request : requests) {
    wait(comm, request, other);
  }
}

/// Measures the link from the other rank to this one, which asks for streams and times them, so that each time has the
/// latency of both ways. A stream of no bytes ends the measurement.
exchange::LinkCost measure_incoming(MPI_Comm comm, std::vector<std::byte>& buffer, int other, bool within) {
  const auto time = [&](int rounds, std::uint64_t bytes) {
    double quickest = std::numeric_limits<double>::max();
    for (int round = 0; round < rounds; ++round) {
      const double begin = now();
      send(comm, bytes, other, kControlTag);
      stream(comm, buffer, bytes, other, false);
      quickest = std::min(quickest, now() - begin);
    }
    return quickest;
  };
  const exchange::LinkCost link = choice::measure_link(time, within);
  send(comm, std::uint64_t{0}, other, kControlTag);
  return link;
}

void answer_outgoing(MPI_Comm comm, std::vector<std::byte>& buffer, int other) {
  while (const auto bytes = receive<std::uint64_t>(comm, other, kControlTag)) {
    stream(comm, buffer, bytes, other, true);
  }
}

PairResult measure_as_first(MPI_Comm comm, std::vector<std::byte>& buffer, const Order& order) {
  answer_outgoing(comm, buffer, order.other);
  const auto out = receive<exchange::LinkCost>(comm, order.other, kResultTag);
  const exchange::LinkCost back = measure_incoming(comm, buffer, order.other, order.within);
  return {.latency = std::min(out.latency_seconds, back.latency_seconds) / 2,
          .out = out.bytes_per_second,
          .back = back.bytes_per_second};
}

void measure_as_second(MPI_Comm comm, std::vector<std::byte>& buffer, const Order& order) {
  send(comm, measure_incoming(comm, buffer, order.other, order.within), order.other, kResultTag);
  answer_outgoing(comm, buffer, order.other);
}

void answer_clock(MPI_Comm comm) {
  for (int i = 0; i < kClockPings; ++i) {
    static_cast<void>(receive<int>(comm, 0, kPingTag));
    send(comm, wall(), 0, kPingTag);
  }
}

void measure_clock(MPI_Comm comm, int other, Facts& rank) {
  send(comm, Order{.what = static_cast<int>(What::clock)}, other, kOrderTag);
  rank.clock_error = std::numeric_limits<double>::max();
  for (int i = 0; i < kClockPings; ++i) {
    const double sent = wall();
    const double begin = now();
    send(comm, i, other, kPingTag);
    const auto theirs = receive<double>(comm, other, kPingTag);
    const double half = (now() - begin) / 2;
    if (half < rank.clock_error) {
      rank.clock_error = half;
      rank.clock_offset = theirs - (sent + half);
    }
  }
}

/// Makes two ranks measure their link. Called on rank 0, which may be one of the two.
PairResult order_pair(MPI_Comm comm, std::vector<std::byte>& buffer, int first, int second, bool within) {
  send(comm, Order{static_cast<int>(What::pair_second), first, within}, second, kOrderTag);
  const Order mine{static_cast<int>(What::pair_first), second, within};
  if (first == 0) {
    return measure_as_first(comm, buffer, mine);
  }
  send(comm, mine, first, kOrderTag);
  return receive<PairResult>(comm, first, kResultTag, true);
}

/// Shows the user, and tells the waiting ranks, that the measurement goes on.
class Progress {
 public:
  Progress(MPI_Comm comm, std::size_t ranks, std::size_t all) : comm_(comm), ranks_(ranks), all_(all) {}
  void tell(std::size_t done) {
    const auto time = Clock::now();
    if (time - told_ > std::chrono::seconds(2) && done < all_) {
      told_ = time;
      std::cerr << "gradwire doctor: " << done << " of " << all_ << " pairs measured\n";
    }
    if (time - called_ > kCall) {
      called_ = time;
      for (std::size_t rank = 1; rank < ranks_; ++rank) {
        send(comm_, Order{.what = static_cast<int>(What::wait)}, static_cast<int>(rank), kOrderTag);
      }
    }
  }

 private:
  MPI_Comm comm_;
  std::size_t ranks_;
  std::size_t all_;
  Clock::time_point told_ = Clock::now();
  Clock::time_point called_ = Clock::now();
};

using Places = std::vector<std::pair<std::size_t, std::size_t>>;

bool within_one_host(const std::vector<Facts>& facts, const Pairs& pairs, std::size_t i, std::size_t j) {
  return facts[static_cast<std::size_t>(pairs.ranks[i])].host == facts[static_cast<std::size_t>(pairs.ranks[j])].host;
}

/// The pairs that would be reported as slow. They are measured again, since a short disturbance is no slow link.
Places suspects(const std::vector<Facts>& facts, const Pairs& pairs) {
  const std::size_t count = pairs.ranks.size();
  std::array<std::vector<double>, 2> rates;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      if (i != j) {
        rates[within_one_host(facts, pairs, i, j) ? 1 : 0].push_back(pairs.rates[i][j]);
      }
    }
  }
  const std::array<double, 2> usual{median(rates[0]), median(rates[1])};
  Places found;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j) {
      const auto [least, most] = std::minmax(pairs.rates[i][j], pairs.rates[j][i]);
      if (least < std::max(most, usual[within_one_host(facts, pairs, i, j) ? 1 : 0]) / 2 &&
          found.size() < kMostSuspects) {
        found.emplace_back(i, j);
      }
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> gather_texts(MPI_Comm comm, const std::string& mine) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  if (rank != 0) {
    send(comm, static_cast<int>(mine.size()), 0, kTextTag);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, 0, kTextTag, comm, &request);
    wait(comm, request, 0, true);
    return {};
  }
  std::vector<std::string> texts{mine};
  for (int other = 1; other < ranks; ++other) {
    const int size = receive<int>(comm, other, kTextTag, true);
    texts.emplace_back(static_cast<std::size_t>(size), '\0');
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Irecv(texts.back().data(), size, MPI_BYTE, other, kTextTag, comm, &request);
    wait(comm, request, other, true);
  }
  return texts;
}

Pairs measure(MPI_Comm comm, std::vector<Facts>& facts, const std::vector<int>& ranks) {
  const double begin = now();
  for (std::size_t rank = 1; rank < facts.size(); ++rank) {
    measure_clock(comm, static_cast<int>(rank), facts[rank]);
  }
  const std::size_t count = ranks.size();
  Pairs pairs{ranks, {}, {}, 0};
  pairs.rates.assign(count, std::vector<double>(count));
  pairs.latencies.assign(count, std::vector<double>(count, std::numeric_limits<double>::max()));
  std::vector<std::byte> buffer;
  const auto add = [&](std::size_t i, std::size_t j) {
    const PairResult result = order_pair(comm, buffer, ranks[i], ranks[j], within_one_host(facts, pairs, i, j));
    pairs.rates[i][j] = std::max(pairs.rates[i][j], result.out);
    pairs.rates[j][i] = std::max(pairs.rates[j][i], result.back);
    pairs.latencies[i][j] = pairs.latencies[j][i] = std::min(pairs.latencies[i][j], result.latency);
  };
  Progress progress(comm, facts.size(), count * (count - 1) / 2);
  std::size_t done = 0;
  for (std::size_t i = 0; i < count; ++i) {
    pairs.latencies[i][i] = 0;
    for (std::size_t j = i + 1; j < count; ++j) {
      add(i, j);
      progress.tell(++done);
    }
  }
  for (int again = 0; again < kAgain; ++again) {
    for (const auto& [i, j] : suspects(facts, pairs)) {
      add(i, j);
      progress.tell(done);
    }
  }
  pairs.seconds = now() - begin;
  return pairs;
}

void end_service(MPI_Comm comm) {
  int ranks = 1;
  MPI_Comm_size(comm, &ranks);
  for (int rank = 1; rank < ranks; ++rank) {
    send(comm, Order{.what = static_cast<int>(What::end)}, rank, kOrderTag);
  }
}

int serve(MPI_Comm comm) {
  std::vector<std::byte> buffer;
  for (;;) {
    const auto order = receive<Order>(comm, 0, kOrderTag, true, 3);
    switch (static_cast<What>(order.what)) {
      case What::pair_first: send(comm, measure_as_first(comm, buffer, order), 0, kResultTag); break;
      case What::pair_second: measure_as_second(comm, buffer, order); break;
      case What::clock: answer_clock(comm); break;
      case What::wait: break;
      case What::end: return 0;
    }
  }
}

}  // namespace gradwire::doctor
