// How Links handles broken connections and ended processes, and what it gives to the agent.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "transport/tcp/tcp_links.hpp"

namespace gradwire::transport::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestTick{100};  // if more time has passed, this process did not run meanwhile
constexpr milliseconds kRareDials{60'000};
constexpr milliseconds kOneDial{300};  // limit of one dial; if a packet is lost, the next dial sends it again
constexpr milliseconds kOneLateDial{1000};
constexpr milliseconds kPause{10};       // between ticks while something is expected soon
constexpr milliseconds kLongPause{200};  // between ticks when that has lasted for longer

constexpr Purpose purpose_of(std::size_t lane) { return lane == 0 ? Purpose::control : Purpose::messages; }

// Whether the end of a process, too, shows as this error.
bool is_end(int code) { return code == 0 || code == ECONNRESET || code == EPIPE || code == ENOTCONN; }

}  // namespace

void Links::note_break(Peer& peer, std::size_t lane, const Channel::Heard& one) {
  LaneState& state = peer.lanes.at(lane);
  if (!std::exchange(state.broken, true)) {
    state.for_ = {};
    state.dials_at = Clock::now();
  } else {  // the new connection broke too
    state.dials_at = Clock::now() + (peer.lost ? kBetweenLateDials : kBetweenDials);
  }
  state.greeted = false;
  state.was_end = is_end(one.code) && !one.damaged;
  if (!dials(peer) && !trusts_resets_) {  // the other side may not have noticed
    channel_.ask_again(peer.lanes.at(1 - lane).number, state.number);
  }
}

void Links::note_mended(Peer& peer, std::size_t lane, std::vector<Heard>& heard) {
  LaneState& state = peer.lanes.at(lane);
  const LaneState& other = peer.lanes.at(1 - lane);
  state.proven = true;
  state.broken = state.greeted = false;
  state.for_ = {};
  if (!dials(peer) && other.broken && !other.gone) {
    channel_.ask_again(state.number, other.number);
  }
  if (peer.lost && !other.broken) {
    peer.lost = false;
    heard.push_back({.from = peer.id, .back = true});
  }
}

void Links::note_end(Id who, const EndOfProcess& end, milliseconds settles_in) {
  const auto found = peers_.find(who);
  if (found == peers_.end() || found->second.over) {
    return;
  }
  Peer& peer = found->second;
  const auto at = Clock::now() + settles_in;
  peer.settles_at = peer.end ? std::min(peer.settles_at, at) : at;
  if (!peer.end || peer.end->epoch < end.epoch) {
    peer.end = end;
  }
}

// Processes on other hosts cannot see this end themselves.
void Links::tell_of_end(const EndOfProcess& end) {
  for (const auto& [id, peer] : peers_) {
    if (!peer.over && peer.host != own_.host) {
      channel_.send(peer.lanes[0].number, bytes_of_body(end), PacketKind::word);
    }
  }
}

void Links::tick(std::vector<Heard>& heard) {
  const auto now = Clock::now();
  const auto passed = std::min<Clock::duration>(now - ticked_, kLongestTick);
  ticked_ = now;
  pause_ = milliseconds::max();
  for (auto& [id, peer] : peers_) {
    if (!peer.over) {
      tick(peer, passed, heard);
    }
  }
}

void Links::tick(Peer& peer, std::chrono::nanoseconds passed, std::vector<Heard>& heard) {
  const auto now = Clock::now();
  for (LaneState& lane : peer.lanes) {
    if (trusts_resets_ && lane.broken && !lane.gone) {  // no connection is made anew
      lane.gone = true;
      lane.for_ = lane.was_end ? lane.for_ : kAnew;
      channel_.close(lane.number);
    }
  }
  const auto has_ended = [](const LaneState& lane) { return lane.gone && lane.was_end; };
  if (trusts_resets_ && !peer.end && std::ranges::all_of(peer.lanes, has_ended)) {
    peer.end = EndOfProcess{.who = peer.id};
    peer.settles_at = now;
  }
  const auto is_broken = [](const LaneState& lane) { return lane.broken || !lane.proven; };
  if (!peer.end && peer.host == own_.host && std::ranges::any_of(peer.lanes, is_broken)) {
    if (const auto word = own_.witnesses->own_word_of(peer.id)) {  // its farewell may not have got through
      note_end(peer.id, *word, kOtherLane);
    }
  }
  if (peer.end) {
    pause_ = kPause;
    const auto is_silent = [](const LaneState& lane) { return lane.gone || lane.broken; };
    if (now >= peer.settles_at || std::ranges::all_of(peer.lanes, is_silent)) {
      finish(peer, heard);
    }
    return;
  }
  for (std::size_t i = 0; i < peer.lanes.size(); ++i) {
    LaneState& lane = peer.lanes.at(i);
    if (!lane.broken) {
      continue;
    }
    pause_ = std::min(pause_, peer.lost ? kLongPause : kPause);
    if (!lane.greeted && !lane.gone) {
      lane.for_ += passed;
    }
    if (!peer.lost && lane.for_ >= kAnew) {
      peer.lost = true;
      heard.push_back({.from = peer.id, .lost = true});
    }
    const bool waits_for_other = peer.lost && i == 1 && peer.lanes[0].broken;
    if (dials(peer) && !lane.gone && !lane.dialing && !lane.greeted && !waits_for_other && now >= lane.dials_at) {
      lane.dialing = true;
      reception_->dial({.who = peer.id,
                        .purpose = purpose_of(i),
                        .card = peer.card,
                        .until = now + (peer.lost ? kOneLateDial : kOneDial)});
    }
  }
  const bool wants_agent = own_.agent != nullptr && peer.host != own_.host && !peer.agent_has && !peer.agent_dials;
  if (wants_agent && now >= peer.agent_dials_at && channel_.live(peer.lanes[0].number)) {
    peer.agent_dials = true;
    reception_->dial({.who = peer.id, .purpose = Purpose::agent, .card = peer.card, .until = now + kOneLateDial});
  }
  if (wants_agent || peer.agent_dials) {
    const auto left = std::chrono::ceil<milliseconds>(peer.agent_dials_at - now);
    pause_ = std::min(pause_, peer.agent_dials_at == Clock::time_point() ? kPause : std::max(left, kLongPause));
  }
}

// Reports the end of a process, after its last messages.
void Links::finish(Peer& peer, std::vector<Heard>& heard) {
  for (const LaneState& lane : peer.lanes) {
    for (Channel::Heard& one : channel_.drain(lane.number)) {
      if (one.what == Channel::Heard::What::message) {
        take(one, heard);
      }
    }
    channel_.close(lane.number);
  }
  peer.over = true;
  heard.push_back({.from = peer.id, .ended = true, .epoch = peer.end->epoch, .step = peer.end->step});
  own_.witnesses->forget(peer.id);
  agents_.forget(peer.id);
  if (own_.agent != nullptr && peer.agent_has) {
    static_cast<void>(own_.agent->forget(peer.id));
  }
}

void Links::give_to_agent(Peer& peer, Socket socket) {
  peer.agent_dials = false;
  peer.agent_pause = std::clamp(2 * peer.agent_pause, kBetweenLateDials, kRareDials);  // it may have closed for good
  peer.agent_dials_at = Clock::now() + peer.agent_pause;
  const auto secret = channel_.secret(peer.lanes[0].number);
  if (!socket.valid() || !secret || own_.agent == nullptr) {
    return;
  }
  const AgentGreeting greeting{.secret = *secret};
  const auto packet = make_packet(PacketKind::agent, 0, bytes_of_body(greeting));
  peer.agent_pause = milliseconds(0);
  peer.agent_has = write_until(socket, packet, Clock::now()) && own_.agent->give(peer.id, std::move(socket));
}

void Links::AgentWord::list(std::vector<pollfd>& polled) {
  const MutexLock lock(links_.mutex_);
  polled.push_back({links_.own_.agent == nullptr ? -1 : links_.own_.agent->readable().fd(), POLLIN, 0});
}

void Links::AgentWord::look(std::span<const pollfd> polled) {
  if (polled.front().revents == 0) {
    return;
  }
  const MutexLock lock(links_.mutex_);
  Id who = 0;
  while (links_.own_.agent->next_broken(who)) {
    if (const auto found = links_.peers_.find(who); found != links_.peers_.end()) {
      found->second.agent_has = false;
    }
  }
  if ((polled.front().revents & (POLLHUP | POLLERR)) != 0) {
    links_.own_.agent.reset();
    log(LogLevel::warning,
        "the agent of this process has ended: processes of other hosts will not hear if it is killed");
  }
}

}  // namespace gradwire::transport::tcp
