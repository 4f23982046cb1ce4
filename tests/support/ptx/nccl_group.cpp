#include "tests/support/ptx/nccl_group.hpp"

#include <cstddef>
#include <cstring>
#include <string>

namespace gradwire::ptx {

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

namespace {

// Does what can be done of the messages of a group; returns whether all of them have been taken.
bool run_messages(Device& device, std::vector<Message>& group, std::uint32_t agent,
                  std::shared_ptr<std::size_t>& untaken) {
  if (untaken == nullptr) {
    untaken = std::make_shared<std::size_t>(0);
    for (const Message& message : group) {
      if (message.sends) {
        ++*untaken;
        message.comm->world->posted[{message.comm->rank, message.peer}].push_back(
            {message.bytes, message.count, agent, untaken});
      }
    }
  }
  bool all = true;
  for (Message& message : group) {
    if (message.sends || message.taken) {
      continue;
    }
    auto& posted = message.comm->world->posted[{message.peer, message.comm->rank}];
    if (posted.empty()) {
      all = false;
      continue;
    }
    const Sent sent = posted.front();
    posted.pop_front();
    if (sent.count != message.count) {
      throw Finding("ncclRecv of " + std::to_string(message.count) + " bytes meets ncclSend of " +
                    std::to_string(sent.count));
    }
    device.memory.note_copy(sent.bytes, false, sent.count, sent.agent, device.order, "a send");
    device.memory.note_copy(message.bytes, true, sent.count, agent, device.order, "a receive");
    std::memmove(message.bytes, sent.bytes, sent.count);
    device.memory.copy_state(message.bytes, sent.bytes, sent.count);
    --*sent.untaken;
    message.taken = true;
  }
  return all && *untaken == 0;
}

// Returns the sum of all ranks' elements from `first` on.
template <class T>
std::vector<T> added(const Meeting& meeting, std::size_t first) {
  std::vector<T> total(meeting.count);
  for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank) {
    const T* values = static_cast<const T*>(meeting.parts[rank].from) + first;
    for (std::size_t i = 0; i < total.size(); ++i) {
      total[i] = rank == 0 ? values[i] : total[i] + values[i];
    }
  }
  return total;
}

template <class T>
void add_all(const Meeting& meeting) {
  std::vector<std::vector<T>> results;  // by rank; inputs and results may be the same memory
  for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank) {
    results.push_back(added<T>(meeting, meeting.kind == Kind::sum_parts ? rank * meeting.count : 0));
  }
  for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank) {
    if (meeting.kind != Kind::sum_at_root || static_cast<int>(rank) == meeting.root) {
      std::memcpy(meeting.parts[rank].to, results[rank].data(), meeting.count * sizeof(T));
    }
  }
}

void gather_all(Device& device, const Meeting& meeting, std::size_t bytes) {
  for (const Meeting::Part& part : meeting.parts) {
    for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank) {
      std::byte* to = static_cast<std::byte*>(part.to) + rank * bytes;
      std::memmove(to, meeting.parts[rank].from, bytes);
      device.memory.copy_state(to, meeting.parts[rank].from, bytes);
    }
  }
}

void run_meeting(Device& device, const Meeting& meeting) {
  const std::size_t bytes = meeting.count * bytes_of(meeting.type);
  const std::size_t all = bytes * meeting.parts.size();
  for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank) {
    const auto& [from, to, agent] = meeting.parts[rank];
    device.memory.note_copy(from, false, meeting.kind == Kind::sum_parts ? all : bytes, agent, device.order,
                            "a collective");
    if (meeting.kind != Kind::sum_at_root || static_cast<int>(rank) == meeting.root) {
      device.memory.note_copy(to, true, meeting.kind == Kind::gather ? all : bytes, agent, device.order,
                              "a collective");
    }
  }
  if (meeting.kind == Kind::gather) {
    gather_all(device, meeting, bytes);
  } else {
    meeting.type == ncclFloat32 ? add_all<float>(meeting) : add_all<double>(meeting);
  }
}

// Comes to a collective; returns whether all ranks have.
bool run_collective(Device& device, Collective& mine, std::uint32_t agent) {
  World& world = *mine.comm->world;
  const bool arrives = mine.number == 0;
  mine.number = arrives ? ++mine.comm->meetings : mine.number;
  Meeting& meeting = world.meetings[mine.number];
  if (!arrives) {
    return meeting.done;
  }
  if (meeting.arrived++ == 0) {
    meeting.parts.resize(static_cast<std::size_t>(world.size));
    meeting.kind = mine.kind;
    meeting.type = mine.type;
    meeting.count = mine.count;
    meeting.root = mine.root;
  } else if (meeting.kind != mine.kind || meeting.type != mine.type || meeting.count != mine.count ||
             meeting.root != mine.root) {
    throw Finding("a collective of NCCL over " + std::to_string(mine.count) + " elements meets another one, of " +
                  std::to_string(meeting.count));
  }
  meeting.parts[static_cast<std::size_t>(mine.comm->rank)] = {mine.from, mine.to, agent};
  if (meeting.arrived == world.size) {
    run_meeting(device, meeting);
    meeting.done = true;
  }
  return meeting.done;
}

}  // namespace

bool run_group(Device& device, Group& group, std::uint32_t agent, std::shared_ptr<std::size_t>& untaken) {
  bool all = run_messages(device, group.messages, agent, untaken);
  for (Collective& collective : group.collectives) {
    all = run_collective(device, collective, agent) && all;
  }
  return all;
}

}  // namespace gradwire::ptx
