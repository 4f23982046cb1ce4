#include "export/http.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/current_error.hpp"
#include "export/page.hpp"
#include "gradwire/error.hpp"

namespace gradwire::metrics {

// Between the thread that reads events and those of the server. These may ask until the process is gone, so it stays
// once there is a server.
struct HttpSink::Served {
  explicit Served(const HttpOptions& options)
      : part(options.part),
        replaced(options.replaced),
        aggregate([](observe::SourceId id) { return observe::source_of(id); }) {}

  const std::string part;
  const std::function<std::vector<ReplacedCalls>()> replaced;
  std::timed_mutex asking;         // of a page in the making, and of what follows; taken before `known`
  std::atomic<bool> ended{false};  // the job's own objects are about to be gone
  std::mutex known;                // of what follows
  Aggregate aggregate;
  ReaderState reader;

  static void collect(void* context, void* page, AddFamily add) noexcept {
    auto& self = *static_cast<Served*>(context);
    try {
      const std::lock_guard lock(self.asking);
      if (!self.ended) {
        hand_over(self.families(), page, add);
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory: the page has what came so far
    }
  }

  std::vector<Family> families() {
    const std::vector<ReplacedCalls> calls = replaced ? replaced() : std::vector<ReplacedCalls>();
    const std::lock_guard lock(known);
    return page_of(aggregate, reader, calls, part);
  }
};

namespace {

// Never destroyed.
std::vector<std::shared_ptr<void>>& kept() {
  static auto* const all = new std::vector<std::shared_ptr<void>>;  // NOLINT(cppcoreguidelines-owning-memory)
  return *all;
}

// Ranks that are threads of one process share the port of rank 0.
std::optional<int> rank_of(const Aggregate& aggregate) {
  if (aggregate.home() || aggregate.ranks().empty()) {
    return aggregate.home();
  }
  return 0;
}

}  // namespace

HttpSink::HttpSink(HttpOptions options, const ExportTable& library)
    : options_(std::move(options)), library_(library), served_(std::make_shared<Served>(options_)) {}

void HttpSink::take(const observe::Round& round) {
  std::optional<int> rank;
  {
    const std::lock_guard lock(served_->known);
    Aggregate& aggregate = served_->aggregate;
    aggregate.add(round, options_.rank);
    served_->reader = {round.clock,      round.recorded, round.dropped, round.collector_seconds,
                       round.ring_bytes, round.last};
    rank = rank_of(aggregate);
  }
  if (round.last) {
    // A page in the making is waited for, but not for ever: a process ends.
    const std::unique_lock lock(served_->asking, std::chrono::seconds(1));
    served_->ended = true;
    return;
  }
  if (!listens_ && rank) {
    listens_ = true;
    listen(*rank);
  }
}

void HttpSink::listen(int rank) {
  std::string address = options_.target.address + ":" + std::to_string(options_.target.port);
  std::array<char, 256> why{};
  try {
    address = options_.target.of_rank(rank);
    kept().push_back(served_);  // stays where the server did not start, too: a few bytes
    if (library_.serve(address.c_str(), &Served::collect, served_.get(), why.data(), why.size()) == 0) {
      return;
    }
    throw Error(ErrorCode::invalid_argument, why.data());
  } catch (...) {
    given_up_ = true;
    options_.warn("metrics: cannot listen on " + address + ": " + current_error().what() +
                  (options_.target.add_rank ? "; write another port"
                                            : "; write another port, or +rank behind it where ranks share a host") +
                  " (GRADWIRE_METRICS). The job goes on without");
  }
}

}  // namespace gradwire::metrics
