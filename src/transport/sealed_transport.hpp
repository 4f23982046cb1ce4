// Encrypts every message of a transport under keys that only its ranks have.
#pragma once

#include <memory>
#include <string>

#include "gradwire/transport.hpp"
#include "security/key.hpp"

namespace gradwire::transport {

/// Returns the transport itself where the job has no key (security/job_key.hpp; `of_policy` is the policy's text), and
/// where it is sealed already, or has one rank; else make_sealed() over it, with the key of the file. `lock_memory` is
/// that of lock_keys(). Error(unsupported) where the job has no key, but a session of this process has the key of its
/// policy, and is still there. Other errors are those of key_setting(), read_key_file(), lock_keys() and
/// Cryptography::load().
[[nodiscard]] std::shared_ptr<Transport> sealed_if_keyed(std::shared_ptr<Transport> inner,
                                                         const std::string& of_policy = {}, bool lock_memory = false);

/// A transport whose messages are sealed: frames as frames of wire version 3 under the sender's key of frames, others
/// as a whole under its key of control messages. The tag is associated data of both; receiver, and number among the
/// messages of its tag, those of the latter. Each message has 24 bytes more for the inner transport; counters and sizes
/// are those of the messages that were handed over. It makes no native sums, and takes no device memory. Its first
/// messages wait until every rank has posted one, since all agree on keys first; of several over one inner transport,
/// ranks must post the first message in the same order. Where an operation is cancelled whose message has left or come,
/// the next message of its tag may be refused. progress() throws Error(mismatch) where another rank has another key,
/// and Error(corrupt), which names the sender, for a message that is not what that sender has sealed for this place, or
/// came before.
[[nodiscard]] std::shared_ptr<Transport> make_sealed(std::shared_ptr<Transport> inner, security::Key job);

/// Returns the check value (security/key_schedule.hpp) of the job's key, or an empty text where the transport is not
/// one of make_sealed().
[[nodiscard]] std::string key_check_of(const Transport& transport);

}  // namespace gradwire::transport
