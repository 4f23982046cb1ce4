// What the words of a page mean, as tooltips.
#include <array>
#include <utility>

#include "watch/page/sections.hpp"

namespace gradwire::watch::page {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 27> kTerms{{
    {"compute", "time of a step outside finish(): the job's own work, behind which communication can hide"},
    {"exposed", "time inside finish(): communication that no computing hid"},
    {"exposed communication", "time inside finish(): communication that no computing hid"},
    {"outside communication", "time in which the job's thread was in no call that communicates"},
    {"inside communication", "time inside calls that communicate"},
    {"encode", "making values smaller: the work of the codec before a message is sent"},
    {"decode", "making values of the bytes that came"},
    {"sum", "adding up what other ranks sent, which decodes it on the way"},
    {"native sums", "sums that the transport's own library makes, such as MPI_Allreduce"},
    {"wait", "time in which a rank's communication had nothing to do until a message came"},
    {"wait share", "wait, as a share of a step, or of the time in a job without steps"},
    {"last to come", "share of pieces of work in which the other ranks waited for this rank's message last"},
    {"sends at", "bytes over the time in which a message of this rank was on its way"},
    {"sent", "bytes handed to the transport; of calls that a drop-in passed on, what a perfect algorithm sends"},
    {"uncompressed", "bytes that a perfect algorithm without compression sends for the same calls"},
    {"bytes in", "bytes of the tensors or buffers that the job handed in"},
    {"ratio", "uncompressed bytes over sent bytes"},
    {"codec", "how values become bytes, such as int8; exact means uncompressed"},
    {"algorithm", "how ranks exchange the values, such as two_shot"},
    {"sync", "when tensors are synchronised: every step, some steps late, or every N steps"},
    {"group", "all tensors that one rule of the policy matches"},
    {"calls", "collective calls; in the table of groups those of one rank"},
    {"buckets", "tensors that travel as one message"},
    {"share of sent", "bytes sent, compared with the group that sends most"},
    {"outcome", "compressed, or passed on unchanged to the job's own library"},
    {"state", "slow: other ranks wait for it; silent: it stopped writing before the others did"},
    {"function", "the function of MPI or NCCL that the job called"},
}};

}  // namespace

std::string with_tooltip(std::string_view term) {
  for (const auto& [word, meaning] : kTerms) {
    if (word == term) {
      return "<abbr title=\"" + escaped(meaning) + "\">" + escaped(term) + "</abbr>";
    }
  }
  return escaped(term);
}

}  // namespace gradwire::watch::page
