// Reads a trace file back with protobuf, and checks the rules for every trace file.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "watch/timeline/trace.pb.h"

namespace gradwire::test {

struct DecodedSlice {
  std::string track;
  std::uint64_t process = 0;
  std::string name;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::map<std::string, std::uint64_t> notes;
};

struct DecodedTrace {
  struct Flow {
    std::vector<std::size_t> from;  // slices
    std::vector<std::size_t> to;
  };
  std::map<std::uint64_t, trace::Descriptor> tracks;  // by uuid
  std::vector<DecodedSlice> slices;
  std::map<std::uint64_t, Flow> flows;
  std::map<std::uint64_t, std::vector<double>> counters;  // by track
};

/// Decodes the file, and fails if it is invalid: each event belongs to a described track, names are known, and slices
/// nest on every track.
inline DecodedTrace decode(const std::string& bytes) {
  DecodedTrace result;
  trace::Trace file;
  EXPECT_TRUE(file.ParseFromString(bytes));
  std::map<std::uint64_t, std::string> names;
  std::map<std::uint64_t, std::string> notes;
  std::map<std::uint64_t, std::vector<std::size_t>> open;  // by track: slices
  std::map<std::uint64_t, std::uint64_t> last;             // by track: time
  bool first = true;
  for (const trace::Packet& packet : file.packet()) {
    EXPECT_EQ(packet.trusted_packet_sequence_id(), 1U);
    EXPECT_EQ(packet.sequence_flags(), first ? 3U : 2U);
    first = false;
    for (const trace::Name& name : packet.interned_data().event_names()) {
      EXPECT_TRUE(names.emplace(name.iid(), name.name()).second);
    }
    for (const trace::Name& name : packet.interned_data().debug_annotation_names()) {
      EXPECT_TRUE(notes.emplace(name.iid(), name.name()).second);
    }
    if (packet.has_track_descriptor()) {
      const trace::Descriptor& track = packet.track_descriptor();
      EXPECT_TRUE(track.has_process() || result.tracks.contains(track.parent_uuid())) << track.name();
      EXPECT_TRUE(result.tracks.emplace(track.uuid(), track).second);
      continue;
    }
    const trace::Event& event = packet.track_event();
    const auto track = result.tracks.find(event.track_uuid());
    if (track == result.tracks.end()) {
      ADD_FAILURE() << "an event without a track";
      continue;
    }
    EXPECT_GE(packet.timestamp(), last[event.track_uuid()]) << track->second.name();
    last[event.track_uuid()] = packet.timestamp();
    if (event.type() == trace::COUNTER) {
      EXPECT_TRUE(track->second.has_counter());
      result.counters[event.track_uuid()].push_back(event.double_counter_value());
    } else if (event.type() == trace::SLICE_BEGIN) {
      DecodedSlice slice{track->second.name(), track->second.parent_uuid(), "", packet.timestamp(), 0, {}};
      EXPECT_TRUE(names.contains(event.name_iid()));
      slice.name = names[event.name_iid()];
      for (const trace::Annotation& note : event.debug_annotations()) {
        EXPECT_TRUE(notes.contains(note.name_iid()));
        slice.notes[notes[note.name_iid()]] = note.uint_value();
      }
      for (const std::uint64_t flow : event.flow_ids()) {
        result.flows[flow].from.push_back(result.slices.size());
      }
      for (const std::uint64_t flow : event.terminating_flow_ids()) {
        result.flows[flow].to.push_back(result.slices.size());
      }
      open[event.track_uuid()].push_back(result.slices.size());
      result.slices.push_back(std::move(slice));
    } else {
      EXPECT_EQ(event.type(), trace::SLICE_END);
      std::vector<std::size_t>& stack = open[event.track_uuid()];
      if (stack.empty()) {
        ADD_FAILURE() << "an end without a begin on " << track->second.name();
        continue;
      }
      result.slices[stack.back()].end = packet.timestamp();
      stack.pop_back();
      if (!stack.empty()) {  // the surrounding slice ends later: its end follows, at no earlier time
        EXPECT_LE(result.slices[stack.back()].begin, packet.timestamp());
      }
    }
  }
  for (const auto& [track, stack] : open) {
    EXPECT_TRUE(stack.empty()) << "a slice without an end on " << result.tracks[track].name();
  }
  return result;
}

/// Checks that every arrow has two ends, and that no receive ends before its send begins by more than `error`.
inline void expect_flows(const DecodedTrace& trace, std::uint64_t error) {
  for (const auto& [id, flow] : trace.flows) {
    ASSERT_EQ(flow.from.size(), 1U) << "flow " << id;
    ASSERT_EQ(flow.to.size(), 1U) << "flow " << id;
    const DecodedSlice& send = trace.slices[flow.from[0]];
    const DecodedSlice& receive = trace.slices[flow.to[0]];
    EXPECT_TRUE(send.name.starts_with("to rank ")) << send.name;
    EXPECT_TRUE(receive.name.starts_with("from rank ")) << receive.name;
    EXPECT_GE(receive.end + error, send.begin) << "flow " << id;
    for (const char* note : {"step", "bucket", "lane"}) {
      EXPECT_EQ(send.notes.at(note), receive.notes.at(note)) << note;
    }
  }
}

}  // namespace gradwire::test
