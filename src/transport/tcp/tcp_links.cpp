#include "transport/tcp/tcp_links.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"

namespace gradwire::transport::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOnItsWay{50};  // wait for messages after a witness of another host reported an end

constexpr std::size_t index_of(Processes::Lane lane) { return lane == Processes::Lane::prompt ? 0 : 1; }

}  // namespace

Links::Links(Own own) : own_(std::move(own)) {
  own_.witnesses->begin(own_.self);
  if (own_.keys != nullptr) {
    own_.agent.reset();  // it has no TLS, and what it says in clear text would be anybody's word
  }
  if (own_.agent != nullptr &&
      (own_.witnesses->page() == nullptr || !own_.agent->begin(own_.self, *own_.witnesses->page()))) {
    own_.agent.reset();
  }
}

void Links::start() {
  reception_ = std::make_unique<Reception>(
      std::move(own_.listeners), Greeting{.nonce = own_.card.nonce, .rank = own_.self},
      own_.knock ? kEndOfTokens : kFirstToken, own_.keys,
      Reception::Host{.came = [this](Accepted accepted) { came(std::move(accepted)); },
                      .made = [this](Dialer::Made made_one) { made(std::move(made_one)); }});
}

Links::~Links() {
  end();
  stop();
}

void Links::meet(const Acquaintance& who, Socket prompt, Socket bulk) {
  // This comes first: from now on other processes may rely on this one.
  if (!own_.host.empty() && who.host == own_.host) {
    static_cast<void>(own_.witnesses->announce(who.witness, who.card.nonce));
  }
  const MutexLock lock(mutex_);
  Peer peer;
  peer.id = who.id;
  peer.card = who.card;
  peer.host = who.host;
  const auto role = dials(peer) ? TcpLane::Role::dials : TcpLane::Role::accepts;
  peer_by_lane_.reserve(peer_by_lane_.size() + 2);
  set_up(prompt, Carries::lane);
  set_up(bulk, Carries::lane);
  Peer& met = peers_[who.id] = std::move(peer);
  try {
    met.lanes[0].number = channel_.add(std::move(prompt), role);
    peer_by_lane_.emplace_back(who.id, 0);
    met.lanes[1].number = channel_.add(std::move(bulk), role);
    peer_by_lane_.emplace_back(who.id, 1);
  } catch (...) {  // without memory the connection is dropped as if it had never come
    peers_.erase(who.id);
    throw;
  }
}

void Links::give(Id who, Socket prompt, Socket bulk) {
  const MutexLock lock(mutex_);
  if (const auto found = peers_.find(who); found != peers_.end()) {
    set_up(prompt, Carries::lane);
    set_up(bulk, Carries::lane);
    channel_.offer(found->second.lanes[0].number, std::move(prompt));
    channel_.offer(found->second.lanes[1].number, std::move(bulk));
  }
}

void Links::forget(Id who) {
  const MutexLock lock(mutex_);
  if (const auto found = peers_.find(who); found != peers_.end()) {
    for (const LaneState& lane : found->second.lanes) {
      channel_.close(lane.number);
    }
    peers_.erase(found);
    agents_.forget(who);
  }
}

void Links::send(Id to, std::span<const std::byte> message, Processes::Lane lane) noexcept {
  std::uint32_t number = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = peers_.find(to);
    if (found == peers_.end() || found->second.over) {
      return;
    }
    number = found->second.lanes[index_of(lane)].number;
  }
  channel_.send(number, message);
}

std::uint64_t Links::unsent(Id to, Processes::Lane lane) const noexcept {
  const MutexLock lock(mutex_);
  const auto found = peers_.find(to);
  return found == peers_.end() ? 0 : channel_.unsent(found->second.lanes[index_of(lane)].number);
}

bool Links::is_at_end(Id who) const noexcept {
  const MutexLock lock(mutex_);
  const auto found = peers_.find(who);
  return found == peers_.end() || channel_.is_at_end(found->second.lanes[0].number);
}

void Links::wake() noexcept {
  woken_ = true;
  channel_.wake();
}

void Links::enter(std::uint32_t epoch) noexcept {
  epoch_ = epoch;
  if (witness::WitnessPage* const page = own_.witnesses->page()) {
    page->enter(epoch);
  }
}

void Links::count(std::uint64_t step) noexcept {
  step_ = step;
  if (witness::WitnessPage* const page = own_.witnesses->page()) {
    page->count(step);
  }
}

void Links::end() noexcept {
  if (closed_.exchange(true)) {
    return;
  }
  if (reception_ != nullptr) {
    reception_->close();
  }
  const EndOfProcess last{.who = own_.self, .epoch = epoch_, .step = step_};
  if (witness::WitnessPage* const page = own_.witnesses->page()) {
    page->end();
  }
  channel_.end(bytes_of_body(last));
  own_.witnesses->close();
  wake();
}

std::vector<Links::Heard> Links::hear(milliseconds wait) {
  const auto until = Clock::now() + wait;
  const std::array<Watched*, 3> beside{own_.witnesses.get(), &agents_, &agent_word_};
  std::vector<Heard> heard;
  for (;;) {
    auto left = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - Clock::now()));
    {
      const MutexLock lock(mutex_);
      left = std::min(left, pause_);
    }
    std::vector<Channel::Heard> of_channel = channel_.hear(left, beside);
    if (closed_) {
      return {};
    }
    const MutexLock lock(mutex_);
    for (Channel::Heard& one : of_channel) {
      take(one, heard);
    }
    for (const EndOfProcess& end : own_.witnesses->take_ends()) {
      const auto found = peers_.find(end.who);
      if (found != peers_.end() && found->second.host == own_.host && !found->second.over) {
        note_end(end.who, end, milliseconds(0));
        tell_of_end(end);
      }
    }
    for (const EndOfProcess& end : agents_.take_ends()) {
      note_end(end.who, end, kOnItsWay);
    }
    tick(heard);
    if (!heard.empty() || woken_.exchange(false) || Clock::now() >= until) {
      return heard;
    }
  }
}

void Links::take(Channel::Heard& one, std::vector<Heard>& heard) {
  using What = Channel::Heard::What;
  const auto [from, lane] = peer_by_lane_.at(one.from);
  const auto found = peers_.find(from);
  if (found == peers_.end() || found->second.over) {
    return;
  }
  Peer& peer = found->second;
  EndOfProcess end;
  BrokenLane broken;
  switch (one.what) {
    case What::message: heard.push_back({.from = from, .message = std::move(one.body)}); break;
    case What::farewell:
      peer.lanes.at(lane).gone = true;
      if (read_body(one.body, end) && end.who == from) {
        note_end(from, end, kOtherLane);
      }
      break;
    case What::word: {
      // A process is believed only about processes of its own host.
      const auto of = read_body(one.body, end) ? peers_.find(end.who) : peers_.end();
      if (of != peers_.end() && of != found && !peer.host.empty() && of->second.host == peer.host) {
        note_end(end.who, end, kOnItsWay);
      }
      break;
    }
    case What::again:
      if (read_body(one.body, broken) && dials(peer)) {
        channel_.break_at(peer.lanes.at(1 - lane).number, broken.attempt);
      }
      break;
    case What::broke: note_break(peer, lane, one); break;
    case What::mended: note_mended(peer, lane, heard); break;
    case What::given_up:
      peer.lanes.at(lane).broken = true;
      peer.lanes.at(lane).gone = true;
      peer.lanes.at(lane).for_ = kAnew;
      log(LogLevel::warning,
          "too much waits to be sent to process " + std::to_string(from) + ", which takes nothing: it is given up");
  }
}

void Links::came(Accepted accepted) {
  const auto who = static_cast<Id>(accepted.rank);
  if (who >= kFirstToken) {
    own_.knock(std::move(accepted));
    return;
  }
  const MutexLock lock(mutex_);
  const auto found = peers_.find(who);
  if (found == peers_.end() || found->second.over || closed_ ||
      (accepted.purpose == Purpose::agent ? own_.keys != nullptr : trusts_resets_.load())) {
    return;
  }
  set_up(accepted.socket, Carries::lane);
  if (accepted.purpose == Purpose::agent) {
    // Its process dials for the agent once both know the secret.
    if (const auto secret = channel_.secret(found->second.lanes[0].number)) {
      agents_.add(who, std::move(accepted.socket), *secret);
      channel_.wake();
    }
  } else if (!dials(found->second)) {
    const std::size_t lane = accepted.purpose == Purpose::control ? 0 : 1;
    channel_.offer(found->second.lanes.at(lane).number, std::move(accepted.socket));
  }
}

void Links::made(Dialer::Made made) {
  const MutexLock lock(mutex_);
  const auto found = peers_.find(made.who);
  if (found == peers_.end() || found->second.over) {
    return;
  }
  Peer& peer = found->second;
  if (made.socket.valid()) {
    set_up(made.socket, Carries::lane);
  }
  if (made.purpose == Purpose::agent) {
    give_to_agent(peer, std::move(made.socket));
    return;
  }
  LaneState& lane = peer.lanes.at(made.purpose == Purpose::control ? 0 : 1);
  lane.dialing = false;
  lane.greeted = made.socket.valid();
  if (made.socket.valid()) {
    channel_.offer(lane.number, std::move(made.socket));
  } else {
    lane.dials_at = Clock::now() + (peer.lost ? kBetweenLateDials : kBetweenDials);
  }
}

}  // namespace gradwire::transport::tcp
