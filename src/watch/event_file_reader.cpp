#include <algorithm>
#include <utility>
#include <vector>

#include "base/regular_file.hpp"
#include "gradwire/error.hpp"
#include "watch/event_blocks.hpp"

namespace gradwire::watch {
namespace {

using observe::Event;

class Reader {
 public:
  Reader(const std::filesystem::path& file, const EventFileVisitor& visitor)
      : file_(file), visitor_(visitor), stream_(file, "file of events") {}

  bool run() {
    for (BlockHead head;; place_ += sizeof head + head.bytes) {
      if (!get(&head, sizeof head)) {
        if (place_ == 0) {
          throw corrupt("no head");
        }
        return false;
      }
      if (head.magic != kMagic || head.place != place_ || head.bytes > kMostBlock ||
          (place_ == 0) != (head.kind == kFile)) {
        throw corrupt("no block");
      }
      if (head.kind == kEnd) {
        return true;
      }
      if (!block(head)) {
        return false;
      }
    }
  }

 private:
  bool get(void* to, std::uint64_t bytes) {
    got_ = stream_.read(to, bytes);
    return got_ == bytes;
  }
  [[nodiscard]] Error corrupt(const std::string& what) const {
    return {ErrorCode::corrupt, file_.string() + ": " + what + " at byte " + std::to_string(place_) +
                                    "; it is no file of events, or of another version or machine"};
  }

  // Reads a block; returns whether all of it is there.
  bool block(const BlockHead& head) {
    switch (head.kind) {
      case kFile: check_version(); return value(head, visitor_.head);
      case kSource: return value(head, visitor_.source);
      case kScale: return value(head, visitor_.scale);
      case kEvents: return events(head);
      default: throw corrupt("a block of unknown kind");
    }
  }
  template <typename Value>
  bool value(const BlockHead& head, const std::function<void(const Value&)>& visit) {
    Value read;
    if (head.bytes != sizeof read) {
      throw corrupt("a block of a wrong size");
    }
    if (!get(&read, sizeof read)) {
      return false;
    }
    check(read);
    if (visit) {
      visit(read);
    }
    return true;
  }
  // A damaged file must not cost more memory than a job of any size.
  void check_rank(std::int64_t rank, std::int64_t world) const {
    if (rank < 0 || rank >= kMostEventRanks || world < 0 || world > kMostEventRanks) {
      throw corrupt("rank " + std::to_string(rank) + (world > 0 ? " of " + std::to_string(world) : "") +
                    ", where a job has at most " + std::to_string(kMostEventRanks) + ",");
    }
  }
  void check(EventFileHead& head) const {
    check_rank(head.rank, 0);
    head.host[sizeof head.host - 1] = 0;
    head.monotonic[sizeof head.monotonic - 1] = 0;
  }
  void check(const EventFileSource& source) const { check_rank(source.rank, source.world_size); }
  void check(const EventFileScale& /*scale*/) const {}
  // The version is checked before the size, which differs between versions.
  void check_version() {
    std::uint32_t version = 0;
    std::uint32_t event_bytes = 0;
    if (get(&version, sizeof version) && get(&event_bytes, sizeof event_bytes) &&
        (version != kEventFileVersion || event_bytes != sizeof(Event))) {
      throw Error(ErrorCode::corrupt, file_.string() + ": events of version " + std::to_string(version) +
                                          ", and this release of gradwire reads version " +
                                          std::to_string(kEventFileVersion) + "; use the release that wrote it");
    }
    stream_.seek(place_ + sizeof(BlockHead));
  }
  // Reads events; of a block that was cut off, those that are there.
  bool events(const BlockHead& head) {
    if (head.bytes % sizeof(Event) != 0) {
      throw corrupt("half an event");
    }
    const std::uint64_t left = stream_.size() - std::min(stream_.size(), place_ + sizeof head);
    const std::uint64_t there = std::min(head.bytes, left / sizeof(Event) * sizeof(Event));
    events_.resize(there / sizeof(Event));
    const bool whole = get(events_.data(), there) && there == head.bytes;
    events_.resize(got_ / sizeof(Event));
    if (std::any_of(events_.begin(), events_.end(),
                    [](const Event& event) { return static_cast<int>(event.kind) >= observe::kEventKinds; })) {
      throw corrupt("an unknown event");
    }
    if (visitor_.events && !events_.empty()) {
      visitor_.events(head.thread, events_);
    }
    return whole;
  }

  const std::filesystem::path& file_;
  const EventFileVisitor& visitor_;
  RegularFile stream_;
  std::size_t got_ = 0;  // bytes of the last read
  std::uint64_t place_ = 0;
  std::vector<Event> events_;
};

}  // namespace

bool read_event_file(const std::filesystem::path& file, const EventFileVisitor& visitor) {
  return Reader(file, visitor).run();
}

}  // namespace gradwire::watch
