// The command line by which this process was started, and command lines without the secrets in them.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

/// The program and its arguments, at most `most` words in all; none where the system does not tell them.
[[nodiscard]] std::vector<std::string> own_command_line(std::size_t most = std::numeric_limits<std::size_t>::max());

/// The words with "***" in place of values that may be secret: behind names with key, token, secret, password, passwd,
/// passphrase, credential or authorization in them, in any case ("--token X", "--token=X", "API_KEY=X", "-genv TOKEN
/// X", "key: X"), and the user and password of URLs. What follows such a name in the same word is left out to its end.
/// A number behind a name with "tokens" in it is a count, and stays.
[[nodiscard]] std::vector<std::string> without_secrets(std::vector<std::string> words);
/// The same for one word, or for a line of several.
[[nodiscard]] std::string without_secrets(std::string_view text);
/// The same for the value of a variable or an option with that name.
[[nodiscard]] std::string without_secrets(std::string_view name, std::string_view value);

}  // namespace gradwire
