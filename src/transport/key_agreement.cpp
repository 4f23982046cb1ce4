#include "transport/key_agreement.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gradwire/error.hpp"

namespace gradwire::transport {
namespace {

constexpr std::uint32_t kGreetingMagic = 0x314B5747U;  // the bytes "GWK1"
constexpr std::uint8_t kGreetingVersion = 1;
constexpr Tag kAgreementTag = kTagLimit - 1;  // no collective has its hop

}  // namespace

KeyAgreement::KeyAgreement(std::shared_ptr<Transport> transport, const security::Cryptography& cryptography,
                           security::Key job)
    : transport_(std::move(transport)), cryptography_(cryptography), job_(std::move(job)) {
  const auto world = static_cast<std::size_t>(transport_->world_size());
  const auto rank = static_cast<std::size_t>(transport_->rank());
  std::vector<KeyGreeting>& greetings = messages_->greetings;
  greetings.resize(world);
  KeyGreeting& own = greetings[rank];
  own = {.magic = kGreetingMagic,
         .version = kGreetingVersion,
         .has_aes = security::has_aes(),
         .salt = security::draw_salt()};
  own.proof = prove_greeting(cryptography_, job_, own.salt, own.has_aes != 0, static_cast<std::uint32_t>(rank),
                             static_cast<std::uint32_t>(world));
  messages_->operations.resize(2 * world);
}

void KeyAgreement::begin() {
  if (begun_) {
    return;
  }
  const std::size_t world = messages_->greetings.size();
  const auto rank = static_cast<std::size_t>(transport_->rank());
  for (std::size_t i = 1; i < world; ++i) {
    const std::size_t peer = (rank + i) % world;  // not all to the same rank at once
    Operation& receive = messages_->operations[2 * peer];
    Operation& send = messages_->operations[2 * peer + 1];
    if (receive.state == Operation::State::idle) {
      transport_->post_receive(receive, static_cast<int>(peer), kAgreementTag,
                               std::as_writable_bytes(std::span(&messages_->greetings[peer], 1)));
    }
    if (send.state == Operation::State::idle) {
      transport_->post_send(send, static_cast<int>(peer), kAgreementTag,
                            std::as_bytes(std::span(&messages_->greetings[rank], 1)));
    }
  }
  begun_ = true;
}

KeyAgreement::~KeyAgreement() {
  bool leak = false;
  for (Operation& operation : messages_->operations) {
    leak = (operation.pending() && !transport_->cancel(operation)) || leak;
  }
  if (leak) {
    static_cast<void>(messages_.release());
  }
}

bool KeyAgreement::complete() const noexcept {
  return begun_ && std::none_of(messages_->operations.begin(), messages_->operations.end(),
                                [](const Operation& operation) { return operation.pending(); });
}

KeyAgreement::Outcome KeyAgreement::derive() const {
  std::vector<security::Salt> salts;
  bool all_have_aes = true;
  const auto world = static_cast<std::uint32_t>(messages_->greetings.size());
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    const KeyGreeting& greeting = messages_->greetings[rank];
    const auto refuse = [&](const std::string& what) {
      throw Error(ErrorCode::mismatch, "security: rank " + std::to_string(rank) + ' ' + what + ", says rank " +
                                           std::to_string(transport_->rank()));
    };
    if (greeting.magic != kGreetingMagic || greeting.version != kGreetingVersion || greeting.has_aes > 1 ||
        greeting.zero != 0) {
      refuse("does not agree on keys as this version does; run the same gradwire on every rank");
    }
    const security::Proof expected =
        prove_greeting(cryptography_, job_, greeting.salt, greeting.has_aes != 0, rank, world);
    if (!cryptography_.equal(expected, greeting.proof)) {
      refuse(
          "has another key, or somebody on the network changes messages; compare `gradwire key check FILE` of the "
          "hosts");
    }
    salts.push_back(greeting.salt);
    all_have_aes = all_have_aes && greeting.has_aes != 0;
  }
  return {first_world_secret(cryptography_, job_, salts), security::choose_cipher(all_have_aes)};
}

}  // namespace gradwire::transport
