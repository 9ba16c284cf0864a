"""The one place that checks what users hand in, and phrases the messages; a file for each kind of thing.

Every message says what was given, what is expected, and how to mend it.
"""

from ccmn.validation.arrays import FloatArray
from ccmn.validation.distributions import check_distribution, check_no_tie
from ccmn.validation.labels import (
    check_candidates,
    check_label_matrix,
    check_label_values,
    check_label_width,
    check_one_hot,
    check_votes,
    check_zero_one,
)
from ccmn.validation.matrices import (
    check_matrix_pair,
    check_no_missing,
    check_no_nan,
    check_nonnegative,
    check_numeric,
    check_probabilities,
    check_same_rows,
    check_same_shape,
)
from ccmn.validation.names import check_feature_names, check_label_names, check_same_labels, name_some
from ccmn.validation.noise import check_noise, check_noise_or_rates, check_rates_known, check_several_labels
from ccmn.validation.rates import check_joint, check_rate_sums, check_rates, check_transition
from ccmn.validation.rows import check_groups, check_trusted_rows
from ccmn.validation.scalars import check_choice, check_count, check_fractions, check_penalty, check_real, check_share
from ccmn.validation.tensors import (
    check_device,
    check_one_device,
    check_outputs_and_labels,
    check_scores_and_targets,
    check_soft_labels,
    check_tensors,
)

__all__ = [
    "FloatArray",
    "check_candidates",
    "check_choice",
    "check_count",
    "check_device",
    "check_distribution",
    "check_feature_names",
    "check_fractions",
    "check_groups",
    "check_joint",
    "check_label_matrix",
    "check_label_names",
    "check_label_values",
    "check_label_width",
    "check_matrix_pair",
    "check_no_missing",
    "check_no_nan",
    "check_no_tie",
    "check_noise",
    "check_noise_or_rates",
    "check_nonnegative",
    "check_numeric",
    "check_one_device",
    "check_one_hot",
    "check_outputs_and_labels",
    "check_penalty",
    "check_probabilities",
    "check_rate_sums",
    "check_rates",
    "check_rates_known",
    "check_real",
    "check_same_labels",
    "check_same_rows",
    "check_same_shape",
    "check_scores_and_targets",
    "check_several_labels",
    "check_share",
    "check_soft_labels",
    "check_tensors",
    "check_transition",
    "check_trusted_rows",
    "check_votes",
    "check_zero_one",
    "name_some",
]
