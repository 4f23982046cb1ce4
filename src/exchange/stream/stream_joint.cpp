#include "exchange/stream/stream_joint.hpp"

#include <algorithm>

#include "exchange/stream/stream_lane.hpp"

namespace gradwire::exchange {

void Joint::add_message(bool sends, int peer, std::byte* data, std::uint64_t bytes) {
  const auto same = [&](const Message& message) { return message.sends == sends && message.peer == peer; };
  const auto found = std::find_if(messages_.begin(), messages_.end(), same);
  if (found == messages_.end()) {
    messages_.push_back({sends, peer, data, bytes});
    return;
  }
  if (data < found->data + found->bytes) {
    throw Error(ErrorCode::internal, "frames of calls that are made together do not lie in their order");
  }
  found->bytes = static_cast<std::uint64_t>(data - found->data) + bytes;
}

void Joint::communicate() {
  for (const Message& message : messages_) {
    if (message.sends) {
      backend_.send({message.data, message.bytes}, message.peer);
    } else {
      backend_.receive({message.data, message.bytes}, message.peer);
    }
  }
  messages_.clear();
}

void Joint::launch() {
  const auto launch_all = [this](auto& jobs, auto operation) {
    if (!jobs.empty()) {
      using Job = typename std::remove_reference_t<decltype(jobs)>::value_type;
      std::byte* list = backend_.acquire(kernels::list_bytes<Job>(jobs.size()));
      (backend_.*operation)(jobs, reinterpret_cast<std::uint64_t*>(list));
      backend_.release(list);
      jobs.clear();
    }
  };
  launch_all(headers_, &StreamBackend::open_all);
  launch_all(encoders_, &StreamBackend::encode_all);
  launch_all(sums_, &StreamBackend::reduce_all);
  launch_all(decoders_, &StreamBackend::decode_all);
  for (std::byte* memory : released_) {
    backend_.release(memory);
  }
  released_.clear();
}

// All ranks must give a lane the same room between two frames, though each leaves out another shard: that of the
// longest chunk.
void StreamLane::lie_together(std::span<const std::unique_ptr<StreamLane>> lanes, const std::shared_ptr<Joint>& joint) {
  std::uint64_t pitch = 0;
  std::vector<std::uint64_t> offsets;
  for (const auto& lane : lanes) {
    for (const Series& series : lane->all_series_) {  // in a world of two ranks there is one frame to encode
      const Slot slot = lane->lane_.instructions[series.instructions[0]].slot;
      if (lane->slots_[slot].block == kNone) {
        lane->lay_out({slot}, series.frames.pitch);
      }
    }
    offsets.push_back(pitch);
    pitch += frame_pitch(lane->task_.call.codecs.first, lane->lane_.series->chunk(0).count);
  }
  joint->pitch = static_cast<std::uint32_t>(pitch);
  joint->blocks.resize(lanes[0]->blocks_.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    StreamLane& lane = *lanes[i];
    for (SlotState& slot : lane.slots_) {
      if (slot.block == kNone || lane.blocks_.size() != joint->blocks.size()) {
        throw Error(ErrorCode::internal, lane.task_.name + ": its frames cannot lie beside those of another call");
      }
      const FrameBlock& own = lane.blocks_[slot.block];
      slot.offset = slot.offset / (own.bytes / own.slots) * pitch + offsets[i];
    }
    for (std::size_t number = 0; number < lane.blocks_.size(); ++number) {
      joint->blocks[number].bytes = lane.blocks_[number].slots * pitch;
      joint->blocks[number].slots += lane.blocks_[number].slots;
    }
    for (Series& series : lane.all_series_) {
      series.frames.pitch = static_cast<std::uint32_t>(pitch);
    }
    lane.joint_ = joint;
  }
}

}  // namespace gradwire::exchange
