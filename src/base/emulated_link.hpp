// The slow link that a job runs over, where one is emulated: by gradwire run --link for all that ranks send, or by a
// transport for gradwire's own messages.
#pragma once

#include <string>
#include <string_view>

namespace gradwire {

/// The link that `gradwire run --link` emulates for this job, such as "1Gbit/s,5ms"; empty: it emulates none.
[[nodiscard]] std::string emulated_link_of_job();
/// The name of a transport with ", emulated LINK" at its end. An empty link, or a name that tells of one, changes
/// nothing.
[[nodiscard]] std::string over_emulated_link(std::string transport, const std::string& link);
/// The link in the name of such a transport: "1Gbit/s,5ms"; empty: none.
[[nodiscard]] std::string_view emulated_link_in(std::string_view transport);

}  // namespace gradwire
