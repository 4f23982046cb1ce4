#include "transport/sealed_transport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/forked.hpp"
#include "gradwire/error.hpp"
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
  explicit SealedBytes(std::size_t count) : memory(std::make_unique_for_overwrite<std::byte[]>(count)), bytes(count) {}
  [[nodiscard]] std::span<std::byte> all() const noexcept { return {memory.get(), bytes}; }

  std::unique_ptr<std::byte[]> memory;  // NOLINT(modernize-avoid-c-arrays)
  std::size_t bytes;
  bool frame = false;
  std::vector<int> receivers = {};  // each takes a counter only once
};

struct SealedOperation : DecoratedOperation {
  std::shared_ptr<SealedBytes> sealed;  // null: a send that waits for the keys
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

// Whether a message is a frame that can be sealed as one: the reader may expect a CRC, which sealed frames do not have.
bool is_frame(std::span<const std::byte> message) {
  if (message.size() < wire::kHeaderBytes || !begins_as_frame(message)) {
    return false;
  }
  try {
    const wire::FrameHeader header = wire::parse_header(message);
    return header.version == kWireVersion && (header.flags & wire::kFlagCrc) == 0;
  } catch (const Error&) {
    return false;
  }
}

std::array<std::byte, 8> place_of(Tag tag, int receiver) {
  std::array<std::byte, 8> place{};
  std::memcpy(place.data(), &tag, 4);
  std::memcpy(place.data() + 4, &receiver, 4);
  return place;
}

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

class SealedTransport final : public Decorator<SealedOperation> {
 public:
  SealedTransport(const std::shared_ptr<Transport>& inner, security::Key job)
      : Decorator(inner),
        cryptography_(security::Cryptography::load()),
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
    SealedOperation& entry = add(operation);
    hand_over(operation, [&] {
      if (agree() && entry.sealed == nullptr) {  // else agree() has sent it
        send(entry);
      }
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
  void send(SealedOperation& entry);
  void receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most);
  [[nodiscard]] std::shared_ptr<SealedBytes> sealed_before(const Operation& operation) const;
  [[nodiscard]] std::shared_ptr<SealedBytes> seal(const Operation& operation);
  void open(SealedOperation& entry);

  security::Cryptography cryptography_;
  std::unique_ptr<KeyAgreement> agreement_;  // null once there are keys
  std::unique_ptr<WorldKeys> keys_;
};

// Returns whether there are keys. Sends that have waited for them are made as soon as they are there.
bool SealedTransport::agree() {
  if (keys_ != nullptr) {
    return true;
  }
  if (!agreement_->complete()) {
    return false;
  }
  keys_ = std::make_unique<WorldKeys>(cryptography_, agreement_->derive(), rank(), world_size());
  agreement_.reset();  // which wipes the job's key; the world's secret is wiped already
  for (const auto& entry : entries_) {
    if (entry->operation->kind == Operation::Kind::send && entry->sealed == nullptr) {
      send(*entry);
    }
  }
  return true;
}

// The frame that these bytes were sealed as for another rank, where that send is under way: its caller may not have
// changed the bytes since.
std::shared_ptr<SealedBytes> SealedTransport::sealed_before(const Operation& operation) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const auto& entry) {
    return entry->operation != &operation && entry->operation->kind == Operation::Kind::send &&
           entry->sealed != nullptr && entry->sealed->frame && entry->operation->data == operation.data &&
           entry->operation->bytes == operation.bytes &&
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
      std::memcpy(sealed->memory.get(), plain.data(), plain.size());
    }
  };
  copy();
  if (sealed->frame) {
    seal_frame(keys_->frames, sealed->all());
    return sealed;
  }
  const auto place = place_of(operation.tag, operation.peer);
  keys_->others.seal(place, sealed->all());
  while (begins_as_frame(sealed->all())) {  // by chance, once in 2^32 messages
    copy();
    keys_->others.seal(place, sealed->all());
  }
  return sealed;
}

void SealedTransport::send(SealedOperation& entry) {
  const Operation& operation = *entry.operation;
  entry.sealed = sealed_before(operation);
  if (entry.sealed == nullptr) {
    entry.sealed = seal(operation);
  }
  entry.sealed->receivers.push_back(operation.peer);
  inner_->post_send(entry.inner, operation.peer, operation.tag, entry.sealed->all());
}

void SealedTransport::receive(Operation& operation, int peer, Tag tag, std::span<std::byte> data, bool at_most) {
  begin_receive(operation, *this, peer, tag, data, at_most);
  SealedOperation& entry = add(operation);
  hand_over(operation, [&] {
    entry.sealed = std::make_shared<SealedBytes>(data.size() + kSealBytes);
    at_most ? inner_->post_receive_at_most(entry.inner, peer, tag, entry.sealed->all())
            : inner_->post_receive(entry.inner, peer, tag, entry.sealed->all());
  });
}

void SealedTransport::open(SealedOperation& entry) {
  const Operation& operation = *entry.operation;
  const auto peer = static_cast<std::size_t>(operation.peer);
  const std::span<std::byte> message = entry.sealed->all().first(entry.inner.bytes);
  if (begins_as_frame(message)) {
    static_cast<void>(open_frame(*keys_->frames_of[peer], message));
  } else {
    keys_->others_of[peer]->open(place_of(operation.tag, rank()), message);
  }
  entry.inner.bytes -= kSealBytes;
  if (entry.inner.bytes > 0) {
    std::memcpy(operation.data, message.data(), entry.inner.bytes);
  }
  entry.opened = true;
  entry.sealed.reset();
}

bool SealedTransport::step(Time /*now*/) {
  if (!agree()) {
    return false;
  }
  for (const auto& entry : entries_) {
    if (entry->operation->kind == Operation::Kind::receive && !entry->opened && !entry->under_way()) {
      open(*entry);
    }
  }
  return complete_if([](const SealedOperation& entry) {
    return entry.operation->kind == Operation::Kind::receive ? entry.opened : !entry.under_way();
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
  if (!setting || inner == nullptr || inner->world_size() < 2 ||
      std::dynamic_pointer_cast<SealedTransport>(inner) != nullptr) {
    return inner;
  }
  if (lock_memory) {
    security::lock_keys();
  }
  return make_sealed(std::move(inner), security::read_key_file(setting->file));
}

}  // namespace gradwire::transport
