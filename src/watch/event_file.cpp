#include "watch/event_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "base/current_error.hpp"
#include "base/own_files.hpp"
#include "base/text.hpp"
#include "base/written_file.hpp"
#include "gradwire/error.hpp"
#include "watch/event_blocks.hpp"
#include "watch/host.hpp"
#include "watch/whole_file.hpp"

namespace gradwire::watch {
namespace {

using observe::Event;
using observe::EventKind;

// Describes the clock of this process in a line; two processes with the same line share a clock.
void describe_monotonic(std::span<char> to) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::array<char, 32> space{};
  if (std::getline(file, text) && ::readlink("/proc/self/ns/time", space.data(), space.size() - 1) > 0) {
    text += std::string("/") + space.data();
  }
  std::copy_n(text.begin(), std::min(text.size(), to.size() - 1), to.begin());
}

}  // namespace

bool has_step(EventKind kind) noexcept {
  return kind <= EventKind::all_reduce || kind == EventKind::choice || kind == EventKind::compare;
}

EventFileSink::~EventFileSink() { close(); }

void EventFileSink::close() {
  if (descriptor_ >= 0) {
    ::close(std::exchange(descriptor_, -1));
  }
}

void EventFileSink::end(const std::string& why) {
  if (descriptor_ >= 0 && bytes_ == 0) {
    ::unlink(file_.c_str());  // there was no room even for its head
  }
  close();
  state_ = State::ended;
  options_.warn("trace: " + why + "; the job goes on without (GRADWIRE_TRACE)");
}

void EventFileSink::take(const observe::Round& round) {
  if (state_ == State::ended) {
    return;
  }
  try {
    if (state_ == State::waits) {
      const std::optional<int> rank = find_rank(round.stretches);
      if (!rank) {
        return;  // nothing has happened
      }
      open(*rank, round.clock);
      state_ = State::writes;
    }
    write(round);
  } catch (...) {
    end("cannot write " + (file_.empty() ? options_.target.directory : file_.string()) + ": " + current_error().what());
  }
}

// Ranks that are threads of one process share the file of rank 0.
std::optional<int> EventFileSink::find_rank(std::span<const observe::Stretch> stretches) const {
  if (options_.rank) {
    return options_.rank();
  }
  if (stretches.empty()) {
    return std::nullopt;
  }
  auto id = observe::first_source();
  auto first = observe::source_of(id);
  while (first && is_alone(*first)) {
    first = observe::source_of(++id);
  }
  return first && !first->shares_process ? first->rank : 0;
}

void EventFileSink::open(int rank, observe::ClockKind clock) {
  std::error_code error;
  make_own_folders(options_.target.directory, error);
  file_ = std::filesystem::path(options_.target.directory) /
          ("gradwire-" + options_.part + "-rank-" + std::to_string(rank) + ".events");
  ::unlink(file_.c_str());  // it is another job's; its readers keep it
  descriptor_ = open_to_write(file_, O_WRONLY | O_EXCL, Readers::owner);
  if (descriptor_ < 0) {
    throw Error(ErrorCode::invalid_argument, error ? error.message() : text::reason_of(errno));
  }
  EventFileHead head{.rank = rank, .clock = static_cast<std::uint32_t>(clock)};
  const std::string host = host_name();
  std::copy_n(host.begin(), std::min(host.size(), sizeof head.host - 1), head.host);
  describe_monotonic(head.monotonic);
  append(kFile, 0, &head, sizeof head);
}

void EventFileSink::append(std::uint32_t kind, std::uint32_t thread, const void* data, std::uint64_t bytes) {
  const BlockHead head{.kind = kind, .thread = thread, .bytes = bytes, .place = bytes_};
  if (!write_all(descriptor_, {reinterpret_cast<const char*>(&head), sizeof head}) ||
      !write_all(descriptor_, {static_cast<const char*>(data), bytes})) {
    throw Error(ErrorCode::invalid_argument, text::reason_of(errno));
  }
  bytes_ += sizeof head + bytes;
}

void EventFileSink::note_sources() {
  next_source_ = std::max<std::uint32_t>(next_source_, observe::first_source());
  for (auto source = observe::source_of(static_cast<observe::SourceId>(next_source_));
       next_source_ != 0 && next_source_ < 0xFFFF && source;
       source = observe::source_of(static_cast<observe::SourceId>(++next_source_))) {
    const EventFileSource entry{.id = next_source_,
                                .rank = source->rank,
                                .world_size = source->world_size,
                                .kind = static_cast<std::uint32_t>(source->kind),
                                .shares_process = source->shares_process && !is_alone(*source) ? 1U : 0U};
    append(kSource, 0, &entry, sizeof entry);
  }
}

void EventFileSink::write(const observe::Round& round) {
  struct stat status {};
  if (::fstat(descriptor_, &status) == 0 && status.st_nlink == 0) {
    throw Error(ErrorCode::invalid_argument, "the file was removed");
  }
  if (round.stretches.empty() && !round.last) {
    return;
  }
  const EventFileScale scale{.ticks = round.scale.ticks,
                             .monotonic = round.scale.nanoseconds,
                             .realtime = realtime_nanoseconds(),
                             .nanoseconds_per_tick = round.scale.nanoseconds_per_tick,
                             .recorded = round.recorded,
                             .dropped = round.dropped};
  append(kScale, 0, &scale, sizeof scale);
  note_sources();
  for (const observe::Stretch& stretch : round.stretches) {
    kept_.clear();
    std::copy_if(stretch.events.begin(), stretch.events.end(), std::back_inserter(kept_), [this](const Event& event) {
      return !has_step(event.kind) ||
             (event.step >= options_.target.first_step && event.step <= options_.target.last_step);
    });
    if (!kept_.empty()) {
      append(kEvents, stretch.thread, kept_.data(), kept_.size() * sizeof(Event));
    }
  }
  if (round.last) {
    append(kEnd, 0, nullptr, 0);
    close();
    state_ = State::ended;
  } else if (bytes_ >= options_.most_bytes) {
    end(file_.string() + " has " + std::to_string(bytes_) + " bytes and ends here; name the steps that matter, as in " +
        options_.target.directory + ":steps=100-120");
  }
}

}  // namespace gradwire::watch
