#include "transport/sealed_transport.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/forked.hpp"
#include "gradwire/error.hpp"
#include "memory/block.hpp"
#include "security/job_key.hpp"
#include "security/key_file.hpp"
#include "security/sealed_frame.hpp"
#include "transport/decorator.hpp"
#include "transport/key_agreement.hpp"
#include "wire/frame.hpp"

namespace gradwire::transport {
namespace {

using security::kSealBytes;

// Bytes on the way. Several sends of one frame share them.
struct SealedBytes {
  explicit SealedBytes(std::size_t count) : memory(count, memory::MemoryUse::frames) {}
  [[nodiscard]] std::span<std::byte> all() const noexcept { return {memory.data(), memory.bytes()}; }

  memory::Block memory;
  bool frame = false;
  std::vector<int> receivers = {};  // each takes a counter only once
};

struct SealedOperation : DecoratedOperation {
  std::shared_ptr<SealedBytes> sealed;  // null: a send that waits for the keys, or that the inner transport refused
  bool opened = false;                  // of a receive
};

// Frames begin with their magic number, and sealed messages of other kinds never do.
bool begins_as_frame(std::span<const std::byte> message) noexcept {
  std::uint32_t magic = 0;
  if (message.size() < sizeof magic) {
    return false;
  }
  std::memcpy(&magic, message.data(), sizeof magic);
  return magic == wire::kMagic;
}

// Whether a message is an undamaged frame, which is sealed as one.
bool is_frame(std::span<const std::byte> message) {
  if (message.size() < wire::kHeaderBytes || !begins_as_frame(message)) {
    return false;
  }
  try {
    return wire::parse_header(message).version == kWireVersion;
  } catch (const Error&) {
    return false;
  }
}

// The associated data of messages that are no frames. `number`: so many of them have gone from the sender to the
// receiver under the tag before.
std::array<std::byte, 16> place_of(Tag tag, int receiver, std::uint64_t number) {
  std::array<std::byte, 16> place{};
  std::memcpy(place.data(), &tag, 4);
  std::memcpy(place.data() + 4, &receiver, 4);
  std::memcpy(place.data() + 8, &number, 8);
  return place;
}

// Counts messages that are no frames, for each peer and tag. Transports hand over those of one tag in order, so both
// sides come to the same numbers, and a message that is held back or dropped leaves a gap.
class MessageCounts {
 public:
  std::uint64_t& of(const Operation& operation) {
    return counts_[static_cast<std::uint64_t>(operation.peer) << 32U | operation.tag];
  }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> counts_;
};

// The sealers of this rank and the openers of all others.
struct WorldKeys {
  WorldKeys(const security::Cryptography& cryptography, const KeyAgreement::Outcome& agreed, int rank, int world)
      : frames(cryptography, agreed.cipher, key(cryptography, agreed, security::Purpose::frames, rank)),
        others(cryptography, agreed.cipher, key(cryptography, agreed, security::Purpose::control, rank)) {
    for (int peer = 0; peer < world; ++peer) {
      const auto opener = [&](security::Purpose purpose) {
        return std::make_unique<security::Opener>(cryptography, agreed.cipher, key(cryptography, agreed, purpose, peer),
                                                  "rank " + std::to_string(peer));
      };
      frames_of.push_back(opener(security::Purpose::frames));
      others_of.push_back(opener(security::Purpose::control));
    }
  }

  static security::Key key(const security::Cryptography& cryptography, const KeyAgreement::Outcome& agreed,
                           security::Purpose purpose, int rank) {
    return sender_key(cryptography, agreed.world_secret, purpose, agreed.cipher, static_cast<std::uint32_t>(rank));
  }

  security::Sealer frames;
  security::Sealer others;
  std::vector<std::unique_ptr<security::Opener>> frames_of;
  std::vector<std::unique_ptr<security::Opener>> others_of;
};

// Counts the transports of this process whose key stands in a policy.
class KeyOfPolicy {
 public:
  KeyOfPolicy() noexcept { ++count_; }
  ~KeyOfPolicy() { --count_; }
  KeyOfPolicy(const KeyOfPolicy&) = delete;
  KeyOfPolicy& operator=(const KeyOfPolicy&) = delete;
  [[nodiscard]] static bool any() noexcept { return count_ > 0; }

 private:
  static inline std::atomic<int> count_ = 0;
};

class SealedTransport final : public Decorator<SealedOperation> {
 public:
  SealedTransport(const std::shared_ptr<Transport>& inner, security::Key job)
      : Decorator(inner),
        cryptography_(security::Cryptography::load()),
        key_check_(check_value(cryptography_, job)),
        agreement_(std::make_unique<KeyAgreement>(inner, cryptography_, std::move(job))) {}

  [[nodiscard]] std::string name() const override { return "sealed(" + inner_->name() + ")"; }
  [[nodiscard]] TransportCapabilities capabilities() const override {
    TransportCapabilities capabilities = inner_->capabilities();
    capabilities.native_all_reduce_f32 = false;
    capabilities.native_all_reduce_f64 = false;
    capabilities.all_reduce_in_call = false;
    capabilities.checksum_by_default = false;  // the seal does more
    capabilities.device_memory = false;
    return capabilities;
  }

  void post_send(Operation& operation, int peer, Tag tag, std::span<const std::byte> data) override {
    begin_send(operation, *this, peer, tag, data);
    add(operation);
    hand_over(operation, [&] {
      sends_wait_ = true;
      send_waiting();
    });
  }
  void post_receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, false);
  }
  void post_receive_at_most(Operation& operation, int peer, Tag tag, std::span<std::byte> data) override {
    receive(operation, peer, tag, data, true);
  }
  void post_all_reduce(Operation& operation, View data) override {
    begin_all_reduce(operation, *this, data);  // throws, since there is no native sum
  }

  [[nodiscard]] const std::string& key_check() const noexcept { return key_check_; }
  void note_key_of_policy() noexcept { key_of_policy_.emplace(); }

  bool progress(std::chrono::microseconds wait) override {
    try {
      return Decorator::progress(wait);
    } catch (const Error& error) {
      // The inner transport compares sizes of messages, and knows nothing of seals.
      if (error.code() != ErrorCode::mismatch || std::string_view(error.what()).starts_with("security")) {
        throw;
      }
      throw Error(error.code(),
                  std::string(error.what()) + (keys_ == nullptr ? "; is the key of the job set on every rank?"
                                                                : " (24 bytes of each are the seal)"),
                  error.cause());
    }
  }

 private:
  bool step(Time now) override;
  [[nodiscard]] Time next_event(Time limit) const override { return limit; }

  bool agree();
  void send_waiting();
  void send(SealedOperation& entry);
  void receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most);
  [[nodiscard]] std::shared_ptr<SealedBytes> sealed_before(const Operation& operation) const;
  [[nodiscard]] std::shared_ptr<SealedBytes> seal(const Operation& operation);
  [[nodiscard]] bool earlier_one_waits(const SealedOperation& entry) const;
  void open(SealedOperation& entry);

  security::Cryptography cryptography_;
  std::string key_check_;
  std::unique_ptr<KeyAgreement> agreement_;  // null once there are keys
  std::unique_ptr<WorldKeys> keys_;
  bool sends_wait_ = false;  // some sends have no sealed bytes yet
  MessageCounts sent_, opened_;
  std::optional<KeyOfPolicy> key_of_policy_;
};

// Returns whether there are keys. The first call tells the other ranks that this one has begun.
bool SealedTransport::agree() {
  if (keys_ != nullptr) {
    return true;
  }
  agreement_->begin();
  if (!agreement_->complete()) {
    return false;
  }
  keys_ = std::make_unique<WorldKeys>(cryptography_, agreement_->derive(), rank(), world_size());
  agreement_.reset();  // which wipes the job's key; the world's secret is wiped already
  return true;
}

// Makes the sends that have waited for the keys, or that the inner transport has refused, in the order of their posts.
void SealedTransport::send_waiting() {
  if (!agree() || !sends_wait_) {
    return;
  }
  for (const auto& entry : entries_) {
    if (entry->operation->kind == Operation::Kind::send && entry->sealed == nullptr) {
      send(*entry);
    }
  }
  sends_wait_ = false;
}

// The frame that these bytes were sealed as for another rank, where that send is under way: its caller may not have
// changed the bytes since.
std::shared_ptr<SealedBytes> SealedTransport::sealed_before(const Operation& operation) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const auto& entry) {
    return entry->operation != &operation && entry->operation->kind == Operation::Kind::send &&
           entry->sealed != nullptr && entry->sealed->frame && entry->operation->data == operation.data &&
           entry->operation->bytes == operation.bytes && entry->operation->tag == operation.tag &&
           std::ranges::find(entry->sealed->receivers, operation.peer) == entry->sealed->receivers.end();
  });
  return found == entries_.rend() ? nullptr : (*found)->sealed;
}

std::shared_ptr<SealedBytes> SealedTransport::seal(const Operation& operation) {
  auto sealed = std::make_shared<SealedBytes>(operation.bytes + kSealBytes);
  const std::span<const std::byte> plain(operation.data, operation.bytes);
  sealed->frame = is_frame(plain);
  const auto copy = [&] {
    if (!plain.empty()) {
      std::memcpy(sealed->memory.data(), plain.data(), plain.size());
    }
  };
  copy();
  if (sealed->frame) {
    seal_frame(keys_->frames, operation.tag, sealed->all());
    return sealed;
  }
  const auto place = place_of(operation.tag, operation.peer, sent_.of(operation));
  keys_->others.seal(place, sealed->all());
  while (begins_as_frame(sealed->all())) {  // by chance, once in 2^32 messages
    copy();
    keys_->others.seal(place, sealed->all());
  }
  return sealed;
}

void SealedTransport::send(SealedOperation& entry) {
  const Operation& operation = *entry.operation;
  std::shared_ptr<SealedBytes> sealed = sealed_before(operation);
  if (sealed == nullptr) {
    sealed = seal(operation);
  }
  sealed->receivers.push_back(operation.peer);
  inner_->post_send(entry.inner, operation.peer, operation.tag, sealed->all());
  if (!sealed->frame) {  // numbers of frames would take memory for each tag of each lane
    ++sent_.of(operation);
  }
  entry.sealed = std::move(sealed);
}

void SealedTransport::receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most) {
  begin_receive(operation, *this, peer, tag, data, at_most);
  SealedOperation& entry = add(operation);
  hand_over(operation, [&] {
    static_cast<void>(agree());
    entry.sealed = std::make_shared<SealedBytes>(data.size() + kSealBytes);
    at_most ? inner_->post_receive_at_most(entry.inner, peer, tag, entry.sealed->all())
            : inner_->post_receive(entry.inner, peer, tag, entry.sealed->all());
  });
}

// Whether a receive of the same tag that was posted earlier still waits: the message for it may be longer.
bool SealedTransport::earlier_one_waits(const SealedOperation& entry) const {
  for (const auto& other : entries_) {
    if (other.get() == &entry) {
      break;
    }
    if (other->operation->kind == Operation::Kind::receive && !other->opened &&
        other->operation->peer == entry.operation->peer && other->operation->tag == entry.operation->tag) {
      return true;
    }
  }
  return false;
}

void SealedTransport::open(SealedOperation& entry) {
  const Operation& operation = *entry.operation;
  const auto peer = static_cast<std::size_t>(operation.peer);
  const std::span<std::byte> message = entry.sealed->all().first(entry.inner.bytes);
  if (begins_as_frame(message)) {
    static_cast<void>(open_frame(*keys_->frames_of[peer], operation.tag, message));
  } else {
    if (earlier_one_waits(entry)) {
      return;
    }
    std::uint64_t& number = opened_.of(operation);
    keys_->others_of[peer]->open(place_of(operation.tag, rank(), number), message);
    ++number;
  }
  entry.inner.bytes -= kSealBytes;
  if (entry.inner.bytes > 0) {
    std::memcpy(operation.data, message.data(), entry.inner.bytes);
  }
  if (!entry.sealed->memory.in_pool()) {
    security::wipe(message);  // it is short, and the heap is in core dumps
  }
  entry.opened = true;
  entry.sealed.reset();
}

bool SealedTransport::step(Time /*now*/) {
  if (entries_.empty() || !agree()) {  // an unused transport sends nothing
    return false;
  }
  send_waiting();
  for (const auto& entry : entries_) {
    if (entry->operation->kind == Operation::Kind::receive && !entry->opened && !entry->under_way()) {
      open(*entry);
    }
  }
  return complete_if([](const SealedOperation& entry) {
    return entry.operation->kind == Operation::Kind::receive ? entry.opened
                                                             : entry.sealed != nullptr && !entry.under_way();
  });
}

}  // namespace

std::shared_ptr<Transport> make_sealed(std::shared_ptr<Transport> inner, security::Key job) {
  if (inner == nullptr) {
    throw Error(ErrorCode::invalid_argument, "make_sealed: no transport to seal");
  }
  return make_shared_at_home<SealedTransport>(std::move(inner), std::move(job));
}

std::shared_ptr<Transport> sealed_if_keyed(std::shared_ptr<Transport> inner, const std::string& of_policy,
                                           bool lock_memory) {
  const std::optional<security::KeySetting> setting = security::key_setting(of_policy);
  if (inner == nullptr || inner->world_size() < 2 || std::dynamic_pointer_cast<SealedTransport>(inner) != nullptr) {
    return inner;
  }
  if (!setting) {
    if (KeyOfPolicy::any()) {
      throw Error(
          ErrorCode::unsupported,
          "security: a session of this process has the key of its policy, and what is made without a key beside "
          "it would send in clear text; set GRADWIRE_KEY=file:PATH on every rank, which covers both");
    }
    return inner;
  }
  if (lock_memory) {
    security::lock_keys();
  }
  if (inner->capabilities().encrypted) {
    return inner;
  }
  std::shared_ptr<Transport> sealed = make_sealed(std::move(inner), security::read_key_file(setting->file));
  if (setting->source != security::kKeyVariable) {
    static_cast<SealedTransport&>(*sealed).note_key_of_policy();
  }
  return sealed;
}

std::string key_check_of(const Transport& transport) {
  const auto* const sealed = dynamic_cast<const SealedTransport*>(&transport);
  return sealed == nullptr ? std::string() : sealed->key_check();
}

}  // namespace gradwire::transport
