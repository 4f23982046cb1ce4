// gradwire key: makes, derives and examines keys of jobs.
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "security/cryptography.hpp"
#include "security/key_file.hpp"
#include "security/key_schedule.hpp"

namespace gradwire::cli {
namespace {

std::string check_of(const security::Key& key) { return security::check_value(security::Cryptography::load(), key); }

}  // namespace

int key_new(const std::string& file, std::ostream& out) {
  security::write_key_file(file, security::Key::random());
  out << text::printable(file)
      << ": a new key, which only this user may read. Copy it to the same path on every host of the "
      << "job, and let nobody else see it\n";
  return 0;
}

int key_derive(const KeyDeriveOptions& options, std::ostream& out) {
  const security::Right right = options.right == "join" ? security::Right::join : security::Right::observe;
  const security::Key derived =
      security::derive_right(security::Cryptography::load(), security::read_key_file(options.file), right);
  security::write_key_file(options.output, derived);
  out << text::printable(options.output) << ": a key to " << options.right
      << " jobs of that key; nobody can compute the job's key from it. Check value: " << check_of(derived) << '\n';
  return 0;
}

int key_check(const std::string& file, std::ostream& out) {
  out << check_of(security::read_key_file(file)) << '\n';
  return 0;
}

}  // namespace gradwire::cli
