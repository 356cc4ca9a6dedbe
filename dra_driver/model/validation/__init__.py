"""What the API server would say about an object, before it is sent: raw JSON in, `FieldError` values out.

Decided here: the same rules, limits, order, field paths and texts as kube-apiserver 1.34 to 1.37, with each release's
feature gates. Messages are compared with a real API server in tests/model/test_validation_apiserver.py. Maps have no
order there; here they are gone through by key.

`slices` holds the rules of a ResourceSlice, the other modules one part of it each, to be shared by other kinds. Must
not know: clusters, files, GPUs.
"""

from dra_driver.model.field_error import FieldError
from dra_driver.model.validation.gates import Rules
from dra_driver.model.validation.slices import validate_resource_slice

__all__ = ["FieldError", "Rules", "validate_resource_slice"]
