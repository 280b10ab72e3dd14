"""The folder that a shell stands in is no secret, although ``PWD`` reads like a password."""

from bound_middleware.core.redaction import Redactor


def test_the_working_folder_stays_readable():
    redact = Redactor({"PWD": "/home/ann/project", "OLDPWD": "/home/ann/other"})
    assert redact("/home/ann/project/a.py, /home/ann/other/b.py") == "/home/ann/project/a.py, /home/ann/other/b.py"


def test_a_variable_named_like_a_password_is_still_hidden():
    assert Redactor({"DB_PWD": "hunter2hunter2"})("it is hunter2hunter2") == "it is [redacted]"
