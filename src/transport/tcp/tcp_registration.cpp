#include "transport/tcp/tcp_registration.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace gradwire::transport::tcp {
namespace {

constexpr char kPart = '@';
constexpr char kPlace = ',';
constexpr char kPort = '/';
constexpr std::string_view kDigits = "0123456789abcdef";

std::string random_digits(std::size_t count) {
  std::string digits;
  while (digits.size() < count) {
    std::uint64_t number = random_number();
    for (std::size_t i = 0; i < 2 * sizeof(number) && digits.size() < count; ++i, number >>= 4U) {
      digits += kDigits[number & 15U];
    }
  }
  return digits;
}

bool are_digits(std::string_view text, std::size_t count) {
  return text.size() == count && text.find_first_not_of(kDigits) == std::string_view::npos;
}

// Takes the text up to the separator, and removes that separator.
std::string_view take_part(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

struct Target {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

std::optional<Target> numeric_target(const std::string& address, std::uint16_t port) {
  Target target;
  auto& four = reinterpret_cast<sockaddr_in&>(target.bytes);
  auto& six = reinterpret_cast<sockaddr_in6&>(target.bytes);
  if (inet_pton(AF_INET, address.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    target.length = sizeof(four);
  } else if (inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    target.length = sizeof(six);
  } else {
    return std::nullopt;
  }
  return target;
}

// The zero byte before the name puts it into the abstract namespace, outside any folder.
std::optional<Target> local_target(const std::string& name) {
  Target target;
  auto& address = reinterpret_cast<sockaddr_un&>(target.bytes);
  if (name.empty() || name.size() + 1 > sizeof(address.sun_path)) {
    return std::nullopt;
  }
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), &address.sun_path[1]);
  target.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return target;
}

Socket new_socket(int family) { return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

Socket begin_at(const std::optional<Target>& target, int& code) {
  if (!target) {
    code = EINVAL;
    return {};
  }
  Socket socket = new_socket(target->bytes.ss_family);
  code = errno;
  if (!socket.valid()) {
    return {};
  }
  const int done = ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&target->bytes), target->length);
  code = done == 0 || errno == EINPROGRESS ? 0 : errno;
  return code == 0 ? std::move(socket) : Socket();
}

}  // namespace

RegistrationAddress RegistrationAddress::random() {
  return {.token = random_digits(kTokenDigits),
          .proof = random_digits(kProofDigits),
          .local = "gradwire-" + random_digits(kProofDigits),
          .places = {}};
}

std::string RegistrationAddress::to_text() const {
  std::string text = token + kPart + proof + kPart + local + kPart;
  for (const auto& [address, port] : places) {
    text += (text.back() == kPart ? "" : std::string(1, kPlace)) + address + kPort + std::to_string(port);
  }
  return text;
}

std::optional<RegistrationAddress> RegistrationAddress::from_text(std::string_view text) {
  const std::string_view whole = text;
  RegistrationAddress read;
  read.token = take_part(text, kPart);
  read.proof = take_part(text, kPart);
  read.local = take_part(text, kPart);
  if (!are_digits(read.token, kTokenDigits) || !are_digits(read.proof, kProofDigits) ||
      (!read.local.empty() && !local_target(read.local))) {
    return std::nullopt;
  }
  while (!text.empty()) {
    std::string_view place = take_part(text, kPlace);
    Card::Place one{.address = std::string(take_part(place, kPort)), .port = 0};
    if (!read_number(place, one.port) || !numeric_target(one.address, one.port)) {
      return std::nullopt;
    }
    read.places.push_back(std::move(one));
  }
  return read.to_text() == whole ? std::optional(read) : std::nullopt;
}

Socket listen_locally(const std::string& name, std::string& why) {
  const auto target = local_target(name);
  Socket socket = new_socket(AF_UNIX);
  if (!target || !socket.valid() ||
      ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&target->bytes), target->length) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    why = system_text(target ? errno : EINVAL);
    return {};
  }
  return socket;
}

Socket begin_connecting_locally(const std::string& name, int& code) { return begin_at(local_target(name), code); }

Socket begin_connecting(const Card::Place& place, int& code) {
  return begin_at(numeric_target(place.address, place.port), code);
}

std::string host_name() {
  std::array<char, sizeof(RegistrationLetter::host)> name{};
  static_cast<void>(::gethostname(name.data(), name.size() - 1));
  return name.data();
}

}  // namespace gradwire::transport::tcp
