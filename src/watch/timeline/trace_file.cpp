// Writes packet by packet, so that memory holds only one of them.
#include "watch/timeline/trace_file.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "watch/timeline/summary.hpp"
#include "watch/timeline/trace.pb.h"

namespace gradwire::watch::timeline {
namespace {

constexpr std::uint32_t kSequence = 1;
constexpr std::uint32_t kCleared = 1;
constexpr std::uint32_t kNeedsInterned = 2;
constexpr int kByRank = 3;  // child_ordering
constexpr int kCount = 2;   // units of counters
constexpr int kBytes = 3;

std::string in_microseconds(std::int64_t nanoseconds) {
  return std::to_string(nanoseconds / 1000) + "." + std::to_string(nanoseconds / 100 % 10) + " us";
}

class Writer {
 public:
  Writer(const Recording& recording, std::ostream& out) : recording_(recording), stream_(&out), coded_(&stream_) {}

  void run(const Alignment& alignment, const Timeline& timeline) {
    begin_ = first_moment(timeline);
    for (std::size_t rank = 0; rank < recording_.ranks.size(); ++rank) {
      write_process(rank, alignment);
    }
    // Sends come first: of two ends at the same moment the arrow begins at the first in the file.
    for (const bool receives : {false, true}) {
      for (const Track& track : timeline.tracks) {
        if (track.receives == receives) {
          write_track(track);
        }
      }
    }
    for (const Counter& counter : timeline.counters) {
      write_counter(counter);
    }
  }

 private:
  // Times begin at 0, so that the numbers shown are short.
  static std::int64_t first_moment(const Timeline& timeline) {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (const Track& track : timeline.tracks) {
      first = track.slices.empty() ? first : std::min(first, track.slices.front().begin);
    }
    for (const Counter& counter : timeline.counters) {
      first = counter.values.empty() ? first : std::min(first, counter.values.front().time);
    }
    return first;
  }

  void put(trace::Packet& packet) {
    packet.set_trusted_packet_sequence_id(kSequence);
    packet.set_sequence_flags(std::exchange(first_, false) ? kCleared | kNeedsInterned : kNeedsInterned);
    constexpr std::uint32_t kPacketField = 1 << 3 | 2;
    coded_.WriteTag(kPacketField);
    coded_.WriteVarint32(static_cast<std::uint32_t>(packet.ByteSizeLong()));
    packet.SerializeWithCachedSizes(&coded_);
  }
  trace::Packet at(std::int64_t time) const {
    trace::Packet packet;
    packet.set_timestamp(static_cast<std::uint64_t>(time - begin_));
    return packet;
  }
  static std::uint64_t process_uuid(std::size_t rank) { return rank + 1; }

  void write_process(std::size_t rank, const Alignment& alignment) {
    const RankLog& log = recording_.ranks[rank];
    const ClockFit& fit = alignment.fits[static_cast<std::size_t>(log.clock)];
    trace::Packet packet;
    trace::Descriptor& track = *packet.mutable_track_descriptor();
    track.set_uuid(process_uuid(rank));
    track.set_child_ordering(kByRank);
    trace::Process& process = *track.mutable_process();
    process.set_pid(static_cast<int>(rank) + 1);
    process.set_process_name(rank_name(recording_, rank));
    if (rank == 0) {
      process.add_process_labels(std::string(kTraceMark));
    }
    process.add_process_labels("host " + log.host);
    process.add_process_labels(log.clock == 0 ? "clock: reference"
                               : fit.known    ? "clock within " + in_microseconds(fit.error)
                                              : "clock by the date of its host");
    if (!log.ended) {
      process.add_process_labels("cut off");
    }
    if (log.dropped > 0) {
      process.add_process_labels(std::to_string(log.dropped) + " events lost");
    }
    put(packet);
  }

  trace::Descriptor& describe(trace::Packet& packet, std::size_t rank, const std::string& name) {
    trace::Descriptor& track = *packet.mutable_track_descriptor();
    track.set_uuid(++uuid_);
    track.set_parent_uuid(process_uuid(rank));
    track.set_name(name);
    const std::pair place(rank, name);
    order_ += std::exchange(last_place_, place) != place ? 1 : 0;  // tracks of one name are shown as one
    track.set_sibling_order_rank(order_);
    return track;
  }

  void write_track(const Track& track) {
    trace::Packet descriptor;
    describe(descriptor, track.rank, track.name);
    put(descriptor);
    std::vector<std::int64_t> open;
    const auto close_until = [&](std::int64_t time) {
      while (!open.empty() && open.back() <= time) {
        trace::Packet packet = at(open.back());
        packet.mutable_track_event()->set_type(trace::SLICE_END);
        packet.mutable_track_event()->set_track_uuid(uuid_);
        put(packet);
        open.pop_back();
      }
    };
    for (const Slice& slice : track.slices) {
      close_until(slice.begin);
      write_begin(track, slice);
      open.push_back(slice.end);
    }
    close_until(std::numeric_limits<std::int64_t>::max());
  }

  void write_begin(const Track& track, const Slice& slice) {
    trace::Packet packet = at(slice.begin);
    trace::Event& event = *packet.mutable_track_event();
    event.set_type(trace::SLICE_BEGIN);
    event.set_track_uuid(uuid_);
    event.set_name_iid(intern(names_, slice.name, packet, &trace::Interned::add_event_names));
    const auto annotate = [&](const char* name, std::uint64_t value) {
      trace::Annotation& annotation = *event.add_debug_annotations();
      annotation.set_name_iid(intern(annotations_, name, packet, &trace::Interned::add_debug_annotation_names));
      annotation.set_uint_value(value);
    };
    if (slice.has_step) {
      annotate("step", slice.step);
    }
    if (slice.has_step && slice.bucket != observe::kNoBucket) {
      annotate("bucket", slice.bucket);
    }
    if (slice.lane >= 0) {
      annotate("lane", static_cast<std::uint64_t>(slice.lane));
    }
    if (slice.peer >= 0) {
      annotate("peer", static_cast<std::uint64_t>(slice.peer));
    }
    if (slice.bytes > 0) {
      annotate("bytes", slice.bytes);
    }
    if (slice.flow != 0) {
      track.receives ? event.add_terminating_flow_ids(slice.flow) : event.add_flow_ids(slice.flow);
    }
    put(packet);
  }

  void write_counter(const Counter& counter) {
    trace::Packet descriptor;
    describe(descriptor, counter.rank, counter.name).mutable_counter()->set_unit(counter.is_bytes ? kBytes : kCount);
    put(descriptor);
    for (const Counter::Value& value : counter.values) {
      trace::Packet packet = at(std::max(value.time, begin_));
      packet.mutable_track_event()->set_type(trace::COUNTER);
      packet.mutable_track_event()->set_track_uuid(uuid_);
      packet.mutable_track_event()->set_double_counter_value(value.value);
      put(packet);
    }
  }

  using Names = std::map<std::string, std::uint64_t>;
  static std::uint64_t intern(Names& names, const std::string& name, trace::Packet& packet,
                              trace::Name* (trace::Interned::*add)()) {
    const auto [at, fresh] = names.try_emplace(name, names.size() + 1);
    if (fresh) {
      trace::Name& entry = *(packet.mutable_interned_data()->*add)();
      entry.set_iid(at->second);
      entry.set_name(name);
    }
    return at->second;
  }

  const Recording& recording_;
  google::protobuf::io::OstreamOutputStream stream_;
  google::protobuf::io::CodedOutputStream coded_;
  std::int64_t begin_ = 0;
  bool first_ = true;
  std::uint64_t uuid_ = 1'000'000;  // for tracks; lower numbers are for processes
  int order_ = 0;
  std::pair<std::size_t, std::string> last_place_;
  Names names_;
  Names annotations_;
};

}  // namespace

bool can_write_traces() noexcept { return true; }

void write_trace(const Recording& recording, const Alignment& alignment, const Timeline& timeline, std::ostream& out) {
  Writer(recording, out).run(alignment, timeline);
  out.flush();
}

}  // namespace gradwire::watch::timeline
