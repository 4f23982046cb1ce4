#include "transport/inproc_world.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace gradwire::transport::inproc {
namespace {

constexpr std::uint64_t kEagerBytes = 8192;  // larger sends are never buffered
constexpr std::uint64_t kSumBytes = 16384;   // an all-reduce sums in blocks that stay in the cache

std::uint64_t channel_key(int source, Tag tag) { return static_cast<std::uint64_t>(source) << 32U | tag; }

template <class T>
void sum_in_rank_order(const std::vector<Request*>& members, std::uint64_t count) {
  constexpr std::uint64_t kBlock = kSumBytes / sizeof(T);
  std::array<T, kBlock> sum;  // not of the pool, whose errors would leave all ranks waiting
  const auto values = [](Request* member) { return reinterpret_cast<T*>(member->operation->data); };
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::uint64_t size = std::min(kBlock, count - begin);
    std::copy_n(values(members[0]) + begin, size, sum.begin());
    for (std::size_t rank = 1; rank < members.size(); ++rank) {
      const T* addend = values(members[rank]) + begin;
      for (std::uint64_t i = 0; i < size; ++i) {
        sum[i] += addend[i];
      }
    }
    for (Request* member : members) {
      std::copy_n(sum.begin(), size, values(member) + begin);
    }
  }
}

}  // namespace

void InprocWorld::abort(AbortReason reason) {
  if (!abort_) {
    abort_ = std::move(reason);
    for (SharedRankState& rank_state : rank_states_) {
      rank_state.changed.notify_all();
    }
  }
}

void InprocWorld::finish(Request& request) {
  request.status = Request::Status::finished;
  rank_state(request.rank).finished.push_back(&request);
  rank_state(request.rank).changed.notify_all();
}

void InprocWorld::fail(Request& request, const std::string& message) {
  request.status = Request::Status::failed;
  SharedRankState& own = rank_state(request.rank);
  if (!own.failure) {
    own.failure.emplace(ErrorCode::mismatch, message);
  }
  own.changed.notify_all();
}

void InprocWorld::transfer(Request& send, Request& receive) {
  const Operation& from = *send.operation;
  Operation& to = *receive.operation;
  if (!takes(to, from.bytes)) {
    fail(receive, describe_mismatch(to, std::to_string(from.bytes)));
    finish(send);
    return;
  }
  if (from.bytes != 0) {
    send.status = receive.status = Request::Status::copying;
    const MutexUnlock meanwhile(mutex_);
    std::memcpy(to.data, from.data, from.bytes);
  }
  finish(receive);
  finish(send);
}

void InprocWorld::send(Request& request) {
  const Operation& operation = *request.operation;
  auto& channels = rank_state(operation.peer).channels;
  const auto at = channels.try_emplace(channel_key(request.rank, operation.tag)).first;
  Channel& channel = at->second;
  if (!channel.receives.empty()) {
    Request& receive = *channel.receives.front();
    channel.receives.pop_front();
    if (channel.receives.empty()) {
      channels.erase(at);
    }
    transfer(request, receive);
  } else if (operation.bytes <= kEagerBytes) {
    UnmatchedSend kept;
    kept.bytes.assign({operation.data, operation.bytes});
    channel.messages.push_back(std::move(kept));
    finish(request);
  } else {
    channel.messages.push_back({&request, {}});
  }
}

void InprocWorld::receive(Request& request) {
  Operation& operation = *request.operation;
  auto& channels = rank_state(request.rank).channels;
  const auto at = channels.try_emplace(channel_key(operation.peer, operation.tag)).first;
  Channel& channel = at->second;
  if (channel.messages.empty()) {
    channel.receives.push_back(&request);
    return;
  }
  const UnmatchedSend message = std::move(channel.messages.front());
  channel.messages.pop_front();
  if (channel.messages.empty()) {
    channels.erase(at);
  }
  if (message.request != nullptr) {
    transfer(*message.request, request);
  } else if (!takes(operation, message.bytes.size())) {
    fail(request, describe_mismatch(operation, std::to_string(message.bytes.size())));
  } else {
    std::copy(message.bytes.begin(), message.bytes.end(), operation.data);
    finish(request);
  }
}

void InprocWorld::all_reduce(Request& request) {
  Gathering& gathering = gatherings_[request.sequence];
  gathering.members.resize(rank_states_.size());
  gathering.members[static_cast<std::size_t>(request.rank)] = &request;
  if (++gathering.arrived < static_cast<int>(rank_states_.size())) {
    return;
  }
  const std::vector<Request*> members = std::move(gathering.members);
  gatherings_.erase(request.sequence);
  for (Request* member : members) {
    if (member == nullptr) {
      return;  // a rank cancelled: the others never finish, and cancel or abort too
    }
  }
  for (Request* member : members) {
    if (member->operation->bytes != request.operation->bytes || member->dtype != request.dtype) {
      for (Request* each : members) {
        fail(*each, "native all-reduce: rank " + std::to_string(member->rank) + " gave " +
                        std::to_string(member->operation->bytes) + " bytes of " +
                        std::string(to_string(member->dtype)) + ", rank " + std::to_string(request.rank) + " gave " +
                        std::to_string(request.operation->bytes) + " bytes of " +
                        std::string(to_string(request.dtype)));
      }
      return;
    }
  }
  for (Request* member : members) {
    member->status = Request::Status::copying;
  }
  {
    const MutexUnlock meanwhile(mutex_);
    const std::uint64_t count = request.operation->bytes / element_bytes(request.dtype);
    request.dtype == DType::f32 ? sum_in_rank_order<float>(members, count) : sum_in_rank_order<double>(members, count);
  }
  for (Request* member : members) {
    finish(*member);
  }
}

void InprocWorld::withdraw(Request& request) {
  SharedRankState& own = rank_state(request.rank);
  own.changed.wait(mutex_, [&] { return request.status != Request::Status::copying; });
  std::erase(own.finished, &request);
  if (request.status != Request::Status::queued) {
    return;
  }
  const Operation& operation = *request.operation;
  if (operation.kind == Operation::Kind::all_reduce) {
    if (const auto at = gatherings_.find(request.sequence); at != gatherings_.end()) {  // absent when a member gave up
      at->second.members[static_cast<std::size_t>(request.rank)] = nullptr;
    }
  } else if (operation.kind == Operation::Kind::receive) {
    std::erase(own.channels[channel_key(operation.peer, operation.tag)].receives, &request);
  } else {
    std::erase_if(rank_state(operation.peer).channels[channel_key(request.rank, operation.tag)].messages,
                  [&](const UnmatchedSend& message) { return message.request == &request; });
  }
}

}  // namespace gradwire::transport::inproc
